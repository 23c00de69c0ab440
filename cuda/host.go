package cuda

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/tutti-go/tutti/internal/cudasys"
	"github.com/tutti-go/tutti/internal/dl"
)

// A HostSlice is pinned host memory: copies between it and a device are fast and
// do not hold up the host. It may be shared between goroutines as other memory
// may.
type HostSlice[T Elem] struct {
	data []T
	pin  *Pinned
}

// AllocHost allocates n zero elements of pinned host memory, for use with all
// devices. The caller frees them.
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
		ptr, err := d.inside(func() (uintptr, error) {
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

// Data returns the memory as a Go slice. It must not be touched after Free:
// that cannot be recovered from.
func (h *HostSlice[T]) Data() []T { return h.data }

// DevicePointer returns the address by which the device reaches the memory.
func (h *HostSlice[T]) DevicePointer() (uintptr, error) { return h.pin.DevicePointer() }

// Free frees the memory. No copy to or from it may be under way. It may be
// called again.
func (h *HostSlice[T]) Free() error { return h.pin.Unpin() }

// Pinned is host memory that devices can reach directly.
type Pinned struct {
	dev     *Device
	ptr     unsafe.Pointer
	bytes   uintptr
	owned   bool // allocated by CUDA, not only pinned
	cleanup runtime.Cleanup

	mu    sync.Mutex
	freed bool
}

// Pin pins host memory that lies outside of Go's heap, such as a mapped file,
// for use with all devices. The caller unpins it before unmapping it.
func Pin(d *Device, mem []byte) (*Pinned, error) {
	if len(mem) == 0 {
		return nil, invalid("no memory to pin")
	}
	if err := d.retain(); err != nil {
		return nil, err
	}
	p := &Pinned{dev: d, ptr: unsafe.Pointer(unsafe.SliceData(mem)), bytes: uintptr(len(mem))}
	_, err := d.inside(func() (uintptr, error) {
		return 0, d.drv.MemHostRegister(p.ptr, p.bytes, cudasys.HostPortable|cudasys.HostMapped)
	})
	if err != nil {
		return nil, err
	}
	p.cleanup = watch(p, d, fmt.Sprintf("%d bytes that were pinned", p.bytes))
	return p, nil
}

// DevicePointer returns the address by which the device reaches the memory.
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

// Unpin ends the pinning. No copy to or from the memory may be under way. It may
// be called again.
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
