package tutti

import (
	"reflect"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// A Buffer describes elements in memory: their address, number and type. It is a small
// value and does not own the memory. The program must not change the memory while an
// operation uses it. A rank passes the zero Buffer for a side that it does not have.
type Buffer struct {
	m engine.Mem
}

// Of returns the Buffer of a slice's elements.
func Of[S ~[]T, T Elem](s S) Buffer {
	return Buffer{engine.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(s)), N: len(s), Type: kernel.DType(TypeOf[T]())}}
}

// TypeOf returns the DType of a Go type.
func TypeOf[T Elem]() DType {
	var zero T
	switch any(zero).(type) {
	case float32:
		return Float32Type
	case float64:
		return Float64Type
	case Float16:
		return Float16Type
	case BFloat16:
		return BFloat16Type
	case int16:
		return Int16Type
	case uint16:
		return Uint16Type
	}
	signed, float := false, false
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Float32, reflect.Float64:
		float = true
	case reflect.Int8, reflect.Int32, reflect.Int64, reflect.Int:
		signed = true
	}
	switch size := unsafe.Sizeof(zero); {
	case float && size == 4:
		return Float32Type
	case float:
		return Float64Type
	case signed && size == 1:
		return Int8Type
	case signed && size == 4:
		return Int32Type
	case signed:
		return Int64Type
	case size == 1:
		if _, value := any(zero).(engine.ValueByte); value {
			return DType(kernel.Value)
		}
		return Uint8Type
	case size == 4:
		return Uint32Type
	}
	return Uint64Type
}

// DeviceBuffer returns the Buffer of n elements at an address in a GPU's
// memory. Only a Comm that was made with that device takes it. Every operation
// refuses a Buffer whose device number no device can have.
func DeviceBuffer(device int, addr unsafe.Pointer, t DType, n int) Buffer {
	return Buffer{engine.OnDevice(device, addr, kernel.DType(t), n)}
}

// Len returns the number of elements; -1 for a Buffer sliced out of range, or of memory after Free.
func (b Buffer) Len() int {
	if b.m.Device == engine.NoSuchDevice {
		return 0
	}
	return max(b.m.N, -1)
}

// Type returns the type of the elements.
func (b Buffer) Type() DType { return DType(b.m.Type) }

// Slice returns the Buffer of elements i to j-1. If i or j is out of range, every
// operation refuses the result with ErrInvalid.
func (b Buffer) Slice(i, j int) Buffer {
	switch {
	case b.m.Device == engine.NoSuchDevice, b.m.N == engine.Freed:
		return b
	case i < 0 || j < i || j > b.m.N:
		b.m.N = engine.OutOfRange
		return b
	}
	b.m = b.m.Slice(i, j-i)
	return b
}

// Parts appends to list the Buffers of the first counts[0] elements, the next
// counts[1], and so on. The uneven operations take such lists.
func (b Buffer) Parts(list []Buffer, counts ...int) []Buffer {
	at := 0
	for _, n := range counts {
		list = append(list, b.Slice(at, at+n))
		at += n
	}
	return list
}

// mems converts a list without copying it: a Buffer has the layout of a Mem.
func mems(list []Buffer) []engine.Mem {
	return unsafe.Slice((*engine.Mem)(unsafe.Pointer(unsafe.SliceData(list))), len(list))
}
