package nccl

import (
	"math"
	"reflect"

	"github.com/tutti-go/tutti/cuda"
)

// A DataType is the type of an element, as ncclDataType_t. Its zero value is not a type.
// A DataType is the type of elements. Its zero value is no type.
type DataType int

// The types. The 8-bit floats need NCCL 2.24. Reducing them needs a device of compute
// capability 9 or more.
// compute capability 9 or more.
const (
	Int8 DataType = iota + 1
	Uint8
	Int32
	Uint32
	Int64
	Uint64
	Float16
	Float32
	Float64
	BFloat16
	Float8E4M3
	Float8E5M2
	types
)

var typeNames = [types]string{
	"no type", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16",
	"float8e4m3", "float8e5m2",
}

var typeSizes = [types]int{0, 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}

// String returns the type's name.
func (t DataType) String() string {
	if t < 0 || t >= types {
		t = 0
	}
	return typeNames[t]
}

// Size returns the size of an element in bytes.
func (t DataType) Size() int {
	if t < 0 || t >= types {
		return 0
	}
	return typeSizes[t]
}

// code returns the ncclDataType_t.
func (t DataType) code() int { return int(t) - 1 }

// TypeOf returns the DataType of T. It returns zero, which is no DataType, for int16 and uint16:
// elements of these types may hold float16 or bfloat16. As states which.
func TypeOf[T cuda.Elem]() DataType {
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Int8:
		return Int8
	case reflect.Uint8:
		return Uint8
	case reflect.Int32:
		return Int32
	case reflect.Uint32:
		return Uint32
	case reflect.Int64, reflect.Int:
		return Int64
	case reflect.Uint64, reflect.Uint:
		return Uint64
	case reflect.Float32:
		return Float32
	case reflect.Float64:
		return Float64
	}
	return 0
}

// A Buffer is device memory that NCCL reads or writes: an address, a number of elements
// and their type. Its zero value is an empty buffer, for the side of an operation that
// this rank does not use. A Buffer does not own its memory.
type Buffer struct {
	mem *cuda.Memory // nil: made by Raw or Known
	dev *cuda.Device
	ptr uintptr
	n   int // elements
	t   DataType
}

// Of returns a slice as a Buffer of T's type.
func Of[T cuda.Elem](s *cuda.Slice[T]) Buffer { return As(s, TypeOf[T]()) }

// As returns a slice as a Buffer of another type of the same size: uint16 as Float16 or
// BFloat16, uint8 as Float8E4M3, or any type for operations that only copy.
func As[T cuda.Elem](s *cuda.Slice[T], t DataType) Buffer {
	if s == nil {
		return Buffer{}
	}
	b := Buffer{mem: s.Memory(), dev: s.Device(), ptr: s.Pointer(), n: s.Len(), t: t}
	if t.Size() != int(reflect.TypeFor[T]().Size()) {
		b.t = 0
	}
	return b
}

// Raw returns memory of another library as a Buffer. It fails if the driver knows the
// memory as shorter, or on another device.
func Raw(d *cuda.Device, ptr uintptr, n int, t DataType) (Buffer, error) {
	if t <= 0 || t >= types || n < 0 || n > math.MaxInt/t.Size() {
		return Buffer{}, invalid("%d elements of %v are not a valid buffer", n, t)
	}
	if ptr%uintptr(t.Size()) != 0 {
		return Buffer{}, invalid("address %#x is not aligned for a %v", ptr, t)
	}
	if n > 0 {
		if err := d.Holds(ptr, uintptr(n)*uintptr(t.Size())); err != nil {
			return Buffer{}, err
		}
	}
	return Buffer{dev: d, ptr: ptr, n: n, t: t}, nil
}

// Known is Raw without the check, for memory that Device.Holds has checked.
func Known(d *cuda.Device, ptr uintptr, n int, t DataType) Buffer {
	return Buffer{dev: d, ptr: ptr, n: n, t: t}
}

// Len returns the number of elements.
func (b Buffer) Len() int { return b.n }

// Type returns the type of the elements.
func (b Buffer) Type() DataType { return b.t }

// check returns an error if NCCL cannot use the buffer on c's device.
func (b *Buffer) check(side string, c *Comm) error {
	if b.t != 0 && b.t < Float8E4M3 && b.dev == c.dev && (b.mem == nil || b.mem.Alive() == nil) {
		return nil
	}
	return b.checkAll(side, c)
}

// checkAll is the slow path of check. It returns an error if the buffer has no type, is on another device,
// was freed, or has a type that this NCCL lacks.
func (b *Buffer) checkAll(side string, c *Comm) error {
	if b.t == 0 {
		return invalid("the %s buffer has no NCCL type; choose one with nccl.As", side)
	}
	if b.dev == nil || b.dev.Ordinal() != c.dev.Ordinal() {
		return invalid("the %s buffer is on %v, the communicator on %v", side, b.dev, c.dev)
	}
	if b.mem != nil {
		if err := b.mem.Alive(); err != nil {
			return err
		}
	}
	if b.t >= Float8E4M3 {
		return public(c.lib.sys.Needs(b.t.String(), 22400))
	}
	return nil
}

// at returns the address of the i-th element.
func (b *Buffer) at(i int) uintptr { return b.ptr + uintptr(i)*uintptr(b.t.Size()) }
