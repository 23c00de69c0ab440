package cuda

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/tutti-go/tutti/internal/cudasys"
	"github.com/tutti-go/tutti/internal/dl"
)

// A HostSlice is a slice in pinned host memory. Copies between it and a device are fast
// and can run asynchronously. Concurrent access follows the rules for any Go memory.
type HostSlice[T Elem] struct {
	data []T
	pin  *Pinned
}

// AllocHost allocates n zeroed elements of pinned host memory that every device can
// access. The caller frees them.
func AllocHost[T Elem](d *Device, n int) (*HostSlice[T], error) {
	bytes, err := sizeOf[T](n)
	if err != nil {
		return nil, err
	}
	if err := d.retain(); err != nil {
		return nil, err
	}
	p := &Pinned{dev: d, bytes: bytes, owned: true}
	if bytes > 0 {
		ptr, err := d.create(func() (uintptr, error) {
			return d.drv.MemHostAlloc(bytes, cudasys.HostPortable|cudasys.HostMapped)
		})
		if err != nil {
			return nil, err
		}
		p.ptr = dl.Pointer(ptr)
	}
	p.cleanup = watch(p, d, fmt.Sprintf("%d bytes of pinned memory", bytes))
	data := unsafe.Slice((*T)(p.ptr), n)
	clear(data)
	return &HostSlice[T]{data: data, pin: p}, nil
}

// Data returns the memory as a Go slice. Access to it after Free crashes the process.
func (h *HostSlice[T]) Data() []T { return h.data }

// DevicePointer returns the memory's address on the device.
func (h *HostSlice[T]) DevicePointer() (uintptr, error) { return h.pin.DevicePointer() }

// Free frees the memory. No copy to or from it may be in progress. Further calls of
// Free do nothing.
func (h *HostSlice[T]) Free() error { return h.pin.Unpin() }

// Pinned is host memory that devices can access directly.
type Pinned struct {
	dev     *Device
	ptr     unsafe.Pointer // in host memory
	bytes   uintptr        // size
	owned   bool           // allocated by the driver, so that Unpin frees it
	cleanup runtime.Cleanup

	mu    sync.Mutex
	freed bool // guarded by mu
}

// Pin pins host memory for access by every device. The memory must lie outside of Go's
// heap, such as a mapped file. The caller unpins it before unmapping it.
func Pin(d *Device, mem []byte) (*Pinned, error) {
	if len(mem) == 0 {
		return nil, invalid("no memory to pin")
	}
	if err := d.retain(); err != nil {
		return nil, err
	}
	p := &Pinned{dev: d, ptr: unsafe.Pointer(unsafe.SliceData(mem)), bytes: uintptr(len(mem))}
	_, err := d.create(func() (uintptr, error) {
		return 0, d.drv.MemHostRegister(p.ptr, p.bytes, cudasys.HostPortable|cudasys.HostMapped)
	})
	if err != nil {
		return nil, err
	}
	p.cleanup = watch(p, d, fmt.Sprintf("%d bytes that were pinned", p.bytes))
	return p, nil
}

// DevicePointer returns the memory's address on the device.
func (p *Pinned) DevicePointer() (uintptr, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.freed || p.bytes == 0 {
		return 0, ended("pinned memory", ErrFreed)
	}
	if err := p.dev.enter(); err != nil {
		return 0, err
	}
	defer p.dev.leave()
	ptr, err := p.dev.drv.MemHostDevicePointer(uintptr(p.ptr))
	return ptr, public(err)
}

// Unpin ends the pinning. No copy to or from the memory may be in progress. Further calls of Unpin do
// nothing, also after an error. It may be called concurrently.
func (p *Pinned) Unpin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.freed {
		return nil
	}
	p.freed = true
	p.cleanup.Stop()
	var err error
	if p.bytes > 0 {
		if err = p.dev.enter(); err == nil {
			if p.owned {
				err = p.dev.drv.MemFreeHost(uintptr(p.ptr))
			} else {
				err = p.dev.drv.MemHostUnregister(p.ptr)
			}
			p.dev.leave()
		}
	}
	if e := p.dev.release(); err == nil {
		err = e
	}
	return public(err)
}
