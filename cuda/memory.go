package cuda

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Elem is the constraint of the element types of device memory.
type Elem interface {
	~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~int | ~uint | ~float32 | ~float64
}

// Memory is one allocation of device memory. Slices refer to it. It may be shared
// between goroutines.
type Memory struct {
	dev      *Device
	ptr      uintptr                 // on the device
	bytes    uintptr                 // size
	foreign  bool                    // made by Wrap: another library owns the memory
	freeFunc func(ptr uintptr) error // frees memory made by Adopt; nil: the driver frees it
	cleanup  runtime.Cleanup

	mu    sync.RWMutex // read-locked while a call uses the memory, locked to free it
	freed atomic.Bool
}

// Device returns the device that the memory is on.
func (m *Memory) Device() *Device { return m.dev }

// Base returns the address of the first byte on the device.
func (m *Memory) Base() uintptr { return m.ptr }

// Bytes returns the size in bytes.
func (m *Memory) Bytes() uintptr { return m.bytes }

// Alive returns nil, or an ErrFreed if the memory has been freed.
func (m *Memory) Alive() error { return m.check() }

func (m *Memory) check() error {
	if m.freed.Load() {
		return ended("device memory", ErrFreed)
	}
	return nil
}

// sizeOf returns the size in bytes of n elements.
func sizeOf[T Elem](n int) (uintptr, error) {
	var t T
	if n < 0 || uint64(n) > math.MaxInt/uint64(unsafe.Sizeof(t)) {
		return 0, invalid("%d elements cannot be allocated", n)
	}
	return uintptr(n) * unsafe.Sizeof(t), nil
}

// newMemory makes a Memory from the address that f allocates. It does not call f for zero bytes. If f fails,
// the device is released again.
func newMemory(d *Device, bytes uintptr, f func() (uintptr, error)) (*Memory, error) {
	if err := d.retain(); err != nil {
		return nil, err
	}
	m := &Memory{dev: d, bytes: bytes}
	if bytes > 0 {
		ptr, err := d.create(f)
		if err != nil {
			return nil, err
		}
		m.ptr = ptr
	}
	m.cleanup = watch(m, d, fmt.Sprintf("%d bytes of device memory", bytes))
	return m, nil
}

// free frees the memory with f, after all calls that use it have returned. The device is released even if f
// fails. Further calls do nothing, also for foreign memory.
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

// A Slice is a slice of elements in device memory. It refers to a Memory as a Go slice
// refers to an array. It may be shared between goroutines.
type Slice[T Elem] struct {
	mem *Memory
	ptr uintptr // of the first element
	n   int     // elements
}

// Alloc allocates n elements with undefined values. The caller frees them. Alloc may
// wait for work on the device.
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

// AllocOn allocates n elements in the order of a stream. Work that is submitted to the
// stream after AllocOn may use them, and so may work that waits for it. The memory comes
// from p, which must be on the same device; nil means the device's default pool. AllocOn
// does not wait for the device. The caller frees the memory.
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

// Adopt allocates n elements with another library's function alloc. Both alloc, which
// gets the number of bytes, and free, which gets the address, are called with the
// device's context current. The caller frees the slice, which calls free.
func Adopt[T Elem](d *Device, n int, alloc func(bytes uintptr) (uintptr, error), free func(ptr uintptr) error) (*Slice[T], error) {
	bytes, err := sizeOf[T](n)
	if err != nil {
		return nil, err
	}
	m, err := newMemory(d, bytes, func() (uintptr, error) { return alloc(bytes) })
	if err != nil {
		return nil, err
	}
	m.freeFunc = free
	return &Slice[T]{m, m.ptr, n}, nil
}

// Wrap returns a Slice of device memory that another library owns: Free ends only the
// Slice. Wrap fails if the driver knows the memory as shorter, or on another device.
func Wrap[T Elem](d *Device, ptr uintptr, n int) (*Slice[T], error) {
	bytes, err := sizeOf[T](n)
	if err != nil {
		return nil, err
	}
	var t T
	if ptr%unsafe.Alignof(t) != 0 {
		return nil, invalid("address %#x is not aligned for a %T", ptr, t)
	}
	if bytes > 0 {
		if err := d.Holds(ptr, bytes); err != nil {
			return nil, err
		}
	}
	return &Slice[T]{&Memory{dev: d, ptr: ptr, bytes: bytes, foreign: true}, ptr, n}, nil
}

// Free waits for the device and frees the memory of the slice and of all slices that
// share it. Further calls of Free do nothing.
func (s *Slice[T]) Free() error {
	return s.mem.free(func() error {
		if s.mem.freeFunc != nil {
			return s.mem.freeFunc(s.mem.ptr)
		}
		return s.mem.dev.drv.MemFree(s.mem.ptr)
	})
}

// FreeOn frees memory of AllocOn in the order of a stream: work now in the stream may
// still use it. FreeOn does not wait for the device.
func (s *Slice[T]) FreeOn(st *Stream) error {
	if err := st.check(); err != nil {
		return err
	}
	if st.dev.ordinal != s.mem.dev.ordinal {
		return invalid("the memory is on %v, the stream on %v", s.mem.dev, st.dev)
	}
	if s.mem.freeFunc != nil {
		return invalid("memory from Adopt cannot be freed in a stream's order; call Free")
	}
	return s.mem.free(func() error { return s.mem.dev.drv.MemFreeAsync(s.mem.ptr, st.handle) })
}

// Len returns the number of elements.
func (s *Slice[T]) Len() int { return s.n }

// Pointer returns the address of the first element on the device.
func (s *Slice[T]) Pointer() uintptr { return s.ptr }

// Memory returns the allocation that the slice refers to.
func (s *Slice[T]) Memory() *Memory { return s.mem }

// Device returns the device that the slice is on.
func (s *Slice[T]) Device() *Device { return s.mem.dev }

// Slice returns the elements i to j-1 as a slice of the same memory. Freeing either
// slice frees both.
func (s *Slice[T]) Slice(i, j int) (*Slice[T], error) {
	if i < 0 || j < i || j > s.n {
		return nil, invalid("elements %d to %d are not a part of a slice of %d", i, j, s.n)
	}
	var t T
	return &Slice[T]{s.mem, s.ptr + uintptr(i)*unsafe.Sizeof(t), j - i}, nil
}

// size returns the size in bytes.
func (s *Slice[T]) size() uintptr {
	var t T
	return uintptr(s.n) * unsafe.Sizeof(t)
}
