package cuda

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Elem is the types of elements that memory can hold.
type Elem interface {
	~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~int | ~uint | ~float32 | ~float64
}

// Memory is one allocation of device memory. Slices are views of it. It may be
// shared between goroutines.
type Memory struct {
	dev     *Device
	ptr     uintptr
	bytes   uintptr
	foreign bool
	end     func(ptr uintptr) error // how another library frees it; nil if it is CUDA's
	cleanup runtime.Cleanup

	mu    sync.RWMutex // held for reading while a call uses the memory
	freed atomic.Bool
}

// Device returns the device that the memory is on.
func (m *Memory) Device() *Device { return m.dev }

// Base returns the address of the first byte, and Bytes their number.
func (m *Memory) Base() uintptr { return m.ptr }

// Bytes returns the size.
func (m *Memory) Bytes() uintptr { return m.bytes }

// Alive returns an ErrFreed if the memory has been freed.
func (m *Memory) Alive() error { return m.check() }

func (m *Memory) check() error {
	if m.freed.Load() {
		return ended("device memory", ErrFreed)
	}
	return nil
}

// sizeOf returns the bytes of n elements of T.
func sizeOf[T Elem](n int) (uintptr, error) {
	var t T
	if n < 0 || uint64(n) > math.MaxInt/uint64(unsafe.Sizeof(t)) {
		return 0, invalid("%d elements", n)
	}
	return uintptr(n) * unsafe.Sizeof(t), nil
}

// newMemory takes what f allocates on the device; of nothing there is nothing
// to free.
func newMemory(d *Device, bytes uintptr, f func() (uintptr, error)) (*Memory, error) {
	if err := d.retain(); err != nil {
		return nil, err
	}
	m := &Memory{dev: d, bytes: bytes}
	if bytes > 0 {
		ptr, err := d.inside(f)
		if err != nil {
			return nil, err
		}
		m.ptr = ptr
	}
	m.cleanup = watch(m, d, fmt.Sprintf("%d bytes of device memory", bytes))
	return m, nil
}

// free ends the memory by f, once.
func (m *Memory) free(f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.freed.Swap(true) {
		return nil
	}
	if m.foreign {
		return nil
	}
	m.cleanup.Stop()
	var err error
	if m.bytes > 0 {
		if err = m.dev.enter(); err == nil {
			err = public(f())
			m.dev.leave()
		}
	}
	if e := m.dev.release(); err == nil {
		err = e
	}
	return err
}

// A Slice is elements in device memory. It is small and refers to a Memory; it
// may be shared between goroutines.
type Slice[T Elem] struct {
	mem *Memory
	ptr uintptr
	n   int
}

// Alloc allocates n elements, which hold arbitrary values. The caller frees
// them. It may wait for work on the device.
func Alloc[T Elem](d *Device, n int) (*Slice[T], error) {
	bytes, err := sizeOf[T](n)
	if err != nil {
		return nil, err
	}
	m, err := newMemory(d, bytes, func() (uintptr, error) { return d.drv.MemAlloc(bytes) })
	if err != nil {
		return nil, err
	}
	return &Slice[T]{m, m.ptr, n}, nil
}

// AllocOn allocates n elements in the stream's order, from a pool of the same
// device or, if that is nil, the device's own: they may be used by work that is
// put into the stream after this, or that waits for such work. Nothing waits for
// the device. The caller frees them.
func AllocOn[T Elem](s *Stream, p *Pool, n int) (*Slice[T], error) {
	bytes, err := sizeOf[T](n)
	if err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	var pool uintptr
	if p != nil {
		if err := p.check(s.dev); err != nil {
			return nil, err
		}
		pool = p.handle
	}
	m, err := newMemory(s.dev, bytes, func() (uintptr, error) { return s.dev.drv.MemAllocAsync(bytes, pool, s.handle) })
	if err != nil {
		return nil, err
	}
	return &Slice[T]{m, m.ptr, n}, nil
}

// Adopt allocates n elements by another library's function, which is called
// with the number of bytes and the context current. The caller frees them, which
// calls free with the address in the same way.
func Adopt[T Elem](d *Device, n int, alloc func(bytes uintptr) (uintptr, error), free func(ptr uintptr) error) (*Slice[T], error) {
	bytes, err := sizeOf[T](n)
	if err != nil {
		return nil, err
	}
	m, err := newMemory(d, bytes, func() (uintptr, error) { return alloc(bytes) })
	if err != nil {
		return nil, err
	}
	m.end = free
	return &Slice[T]{m, m.ptr, n}, nil
}

// Wrap makes a Slice of another library's device memory. The memory stays the
// other library's: Free only ends this value. Memory that is known to be shorter
// or elsewhere is an error.
func Wrap[T Elem](d *Device, ptr uintptr, n int) (*Slice[T], error) {
	bytes, err := sizeOf[T](n)
	if err != nil {
		return nil, err
	}
	var t T
	if ptr%unsafe.Alignof(t) != 0 {
		return nil, invalid("address %#x is not one of a %T", ptr, t)
	}
	if bytes > 0 {
		if err := d.Holds(ptr, bytes); err != nil {
			return nil, err
		}
	}
	return &Slice[T]{&Memory{dev: d, ptr: ptr, bytes: bytes, foreign: true}, ptr, n}, nil
}

// Free waits for the device and frees the memory, with all slices of it. It may
// be called again, and on any of these slices.
func (s *Slice[T]) Free() error {
	return s.mem.free(func() error {
		if s.mem.end != nil {
			return s.mem.end(s.mem.ptr)
		}
		return s.mem.dev.drv.MemFree(s.mem.ptr)
	})
}

// FreeOn frees the memory of AllocOn in a stream's order: work that the stream
// holds now may still use it. Nothing waits for the device.
func (s *Slice[T]) FreeOn(st *Stream) error {
	if err := st.check(); err != nil {
		return err
	}
	if st.dev.ordinal != s.mem.dev.ordinal {
		return invalid("the memory is on %v, the stream on %v", s.mem.dev, st.dev)
	}
	if s.mem.end != nil {
		return invalid("this memory is freed by Free only")
	}
	return s.mem.free(func() error { return s.mem.dev.drv.MemFreeAsync(s.mem.ptr, st.handle) })
}

// Len returns the number of elements.
func (s *Slice[T]) Len() int { return s.n }

// Pointer returns the address of the first element on the device.
func (s *Slice[T]) Pointer() uintptr { return s.ptr }

// Memory returns the allocation that the slice is of.
func (s *Slice[T]) Memory() *Memory { return s.mem }

// Device returns the device that the slice is on.
func (s *Slice[T]) Device() *Device { return s.mem.dev }

// Slice returns the elements from i up to, not including, j. It owns nothing:
// freeing either frees both.
func (s *Slice[T]) Slice(i, j int) (*Slice[T], error) {
	if i < 0 || j < i || j > s.n {
		return nil, invalid("elements %d to %d of %d", i, j, s.n)
	}
	var t T
	return &Slice[T]{s.mem, s.ptr + uintptr(i)*unsafe.Sizeof(t), j - i}, nil
}

// size returns the slice's bytes.
func (s *Slice[T]) size() uintptr {
	var t T
	return uintptr(s.n) * unsafe.Sizeof(t)
}
