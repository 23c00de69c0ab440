package bench

import (
	"context"
	"unsafe"

	"github.com/tutti-go/tutti"
)

// Memory is a buffer for the measured operations.
type Memory struct {
	Buf tutti.Buffer
	// Bytes is the memory, or, for GPU memory, a copy in host memory.
	Bytes []byte
	// Push writes the first n bytes of the copy to the GPU, Pull reads them back.
	// Nil: Bytes is not a copy.
	Push, Pull func(n int) error
	// Free frees the memory. Nil: the garbage collector does.
	Free func() error
}

// A GPU is a rank's GPU.
type GPU interface {
	// Device is for Config.Device.
	Device() tutti.Device
	// Alloc returns n elements of the GPU's memory.
	Alloc(t tutti.DType, n int) (*Memory, error)
	// Description names the GPU and its library.
	Description() string
	// Close releases the GPU after all memory was freed.
	Close() error
}

// slice returns n elements from element i on. The whole is freed, pushed and
// pulled.
func (m *Memory) slice(i, n int) *Memory {
	size := m.Buf.Type().Size()
	return &Memory{Buf: m.Buf.Slice(i, i+n), Bytes: m.Bytes[i*size : (i+n)*size : (i+n)*size]}
}

func (m *Memory) push(n int) error {
	if m.Push == nil {
		return nil
	}
	return m.Push(n)
}

func (m *Memory) pull(n int) error {
	if m.Pull == nil {
		return nil
	}
	return m.Pull(n)
}

func (m *Memory) free() error {
	if m == nil || m.Free == nil {
		return nil
	}
	return m.Free()
}

// newMemory returns n elements of host memory. If shared is set it is memory that all ranks of a
// host can access; all ranks must then call newMemory together.
func newMemory(ctx context.Context, c *tutti.Comm, t tutti.DType, n int, shared bool) (*Memory, error) {
	switch t {
	case tutti.Int8Type:
		return hostMemory[int8](ctx, c, n, shared)
	case tutti.Uint8Type:
		return hostMemory[uint8](ctx, c, n, shared)
	case tutti.Int16Type:
		return hostMemory[int16](ctx, c, n, shared)
	case tutti.Uint16Type:
		return hostMemory[uint16](ctx, c, n, shared)
	case tutti.Int32Type:
		return hostMemory[int32](ctx, c, n, shared)
	case tutti.Uint32Type:
		return hostMemory[uint32](ctx, c, n, shared)
	case tutti.Int64Type:
		return hostMemory[int64](ctx, c, n, shared)
	case tutti.Uint64Type:
		return hostMemory[uint64](ctx, c, n, shared)
	case tutti.Float16Type:
		return hostMemory[tutti.Float16](ctx, c, n, shared)
	case tutti.BFloat16Type:
		return hostMemory[tutti.BFloat16](ctx, c, n, shared)
	case tutti.Float64Type:
		return hostMemory[float64](ctx, c, n, shared)
	}
	return hostMemory[float32](ctx, c, n, shared)
}

func hostMemory[T tutti.Elem](ctx context.Context, c *tutti.Comm, n int, shared bool) (*Memory, error) {
	if !shared {
		s := make([]T, n)
		return &Memory{Buf: tutti.Of(s), Bytes: Bytes(s)}, nil
	}
	m, err := tutti.Alloc[T](ctx, c, n)
	if err != nil {
		return nil, err
	}
	return &Memory{Buf: m.Buffer(), Bytes: Bytes(m.Slice()), Free: m.Free}, nil
}

// Bytes returns the memory of a slice.
func Bytes[T tutti.Elem](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}
