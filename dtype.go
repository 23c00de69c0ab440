package tutti

import (
	"github.com/tutti-go/tutti/internal/kernel"
)

// A DType is the type of a Buffer's elements. Its zero value is no type.
type DType uint8

// The element types.
const (
	Int8Type DType = iota + 1
	Uint8Type
	Int32Type
	Uint32Type
	Int64Type
	Uint64Type
	Float16Type
	BFloat16Type
	Float32Type
	Float64Type
	Int16Type
	Uint16Type
)

// Each DType has the number of the kernel type of the same name, so that a Go
// conversion turns one into the other. A different number or a missing type does
// not compile.
var (
	_ = [1]struct{}{}[int(Uint16Type)-int(kernel.NumDTypes)]
	_ = [1]struct{}{}[int(Int8Type)-int(kernel.Int8)]
	_ = [1]struct{}{}[int(Uint8Type)-int(kernel.Uint8)]
	_ = [1]struct{}{}[int(Int32Type)-int(kernel.Int32)]
	_ = [1]struct{}{}[int(Uint32Type)-int(kernel.Uint32)]
	_ = [1]struct{}{}[int(Int64Type)-int(kernel.Int64)]
	_ = [1]struct{}{}[int(Uint64Type)-int(kernel.Uint64)]
	_ = [1]struct{}{}[int(Float16Type)-int(kernel.Float16)]
	_ = [1]struct{}{}[int(BFloat16Type)-int(kernel.BFloat16)]
	_ = [1]struct{}{}[int(Float32Type)-int(kernel.Float32)]
	_ = [1]struct{}{}[int(Float64Type)-int(kernel.Float64)]
	_ = [1]struct{}{}[int(Int16Type)-int(kernel.Int16)]
	_ = [1]struct{}{}[int(Uint16Type)-int(kernel.Uint16)]
)

// String returns the type's name, such as "float32".
func (t DType) String() string { return kernel.DType(t).String() }

// Size returns the number of bytes of one element.
func (t DType) Size() int { return kernel.DType(t).Size() }

// Elem is the set of element types of Go slices that a Buffer can hold. An int is
// passed as int64 and a uint as uint64, or as the 32-bit types on 32-bit systems.
//
// Of the types with 16 bits it has int16, uint16, Float16 and BFloat16 themselves, and no
// other type that is defined by one of them: such a type often holds a float.
type Elem interface {
	~int8 | ~uint8 | int16 | uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~int | ~uint | ~float32 | ~float64 | Float16 | BFloat16
}

// Float16 holds the bits of an IEEE 754 half-precision number.
type Float16 uint16

// BFloat16 holds the upper 16 bits of a float32.
type BFloat16 uint16

// ToFloat16 rounds to the nearest half-precision number, ties to even.
func ToFloat16(f float32) Float16 { return Float16(kernel.Float32ToFloat16(f)) }

// Float32 returns the same number as a float32. The conversion is exact.
func (f Float16) Float32() float32 { return kernel.Float16ToFloat32(uint16(f)) }

// ToBFloat16 rounds to the nearest bfloat16 number, ties to even.
func ToBFloat16(f float32) BFloat16 { return BFloat16(kernel.Float32ToBFloat16(f)) }

// Float32 returns the same number as a float32. The conversion is exact.
func (f BFloat16) Float32() float32 { return kernel.BFloat16ToFloat32(uint16(f)) }
