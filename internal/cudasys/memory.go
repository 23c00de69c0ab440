package cudasys

import (
	"sync"
	"unsafe"

	"github.com/tutti-go/tutti/internal/dl"
)

// Flags and attributes of memory.
const (
	HostPortable = 1
	HostMapped   = 2

	MemoryTypeHost   = 1
	MemoryTypeDevice = 2

	poolReleaseThreshold = 4
)

// MemInfo returns the free and all bytes of the current context's device.
func (d *Driver) MemInfo() (free, total uint64, err error) {
	fr := dl.NewFrame()
	defer fr.Done()
	err = d.call(fr, fnMemGetInfo, fr.Out(0), fr.Out(1))
	return fr.Result(0), fr.Result(1), err
}

// MemAlloc allocates device memory.
func (d *Driver) MemAlloc(bytes uintptr) (uintptr, error) { return d.made(fnMemAlloc, bytes) }

// MemFree waits for the device and frees device memory.
func (d *Driver) MemFree(ptr uintptr) error { return d.simple(fnMemFree, ptr) }

// MemHostAlloc allocates pinned host memory.
func (d *Driver) MemHostAlloc(bytes uintptr, flags uint32) (uintptr, error) {
	return d.made(fnMemHostAlloc, bytes, uintptr(flags))
}

// MemFreeHost frees pinned host memory.
func (d *Driver) MemFreeHost(ptr uintptr) error { return d.simple(fnMemFreeHost, ptr) }

// MemHostRegister pins host memory that was not allocated by CUDA.
func (d *Driver) MemHostRegister(ptr unsafe.Pointer, bytes uintptr, flags uint32) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return d.call(fr, fnMemHostRegister, fr.Hold(0, ptr), bytes, uintptr(flags))
}

// MemHostUnregister ends what MemHostRegister began.
func (d *Driver) MemHostUnregister(ptr unsafe.Pointer) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return d.call(fr, fnMemHostUnregister, fr.Hold(0, ptr))
}

// MemHostDevicePointer returns the address by which the device reaches pinned
// host memory.
func (d *Driver) MemHostDevicePointer(ptr uintptr) (uintptr, error) {
	return d.made(fnMemHostGetDevicePointer, ptr, 0)
}

// A Place is what the driver knows of the memory at an address: nothing is its zero,
// and so is what it does not know of memory.
type Place struct {
	Kind        uint32 // MemoryTypeHost, MemoryTypeDevice, ...
	Device      int32
	Start, Size uint64 // of the allocation
}

// placed are the attributes of which a Place consists: memory type, number of the
// device, start and size of the range.
var placed = [4]int32{2, 9, 11, 12}

// A question about memory lives on the heap, where C finds its parts.
type question struct {
	attributes [len(placed)]int32
	answers    [len(placed)]uint64
	to         [len(placed)]*uint64
}

var questions = sync.Pool{New: func() any {
	q := &question{attributes: placed}
	for i := range q.to {
		q.to[i] = &q.answers[i]
	}
	return q
}}

// Place returns what is at an address. The call is made in a bracket that makes a
// context current.
func (d *Driver) Place(in *dl.Bracket, ptr uintptr) (Place, error) {
	q := questions.Get().(*question)
	defer questions.Put(q)
	clear(q.answers[:])
	err := d.within(in, fnPointerGetAttributes, &dl.Args{
		uintptr(len(placed)), uintptr(unsafe.Pointer(&q.attributes)), uintptr(unsafe.Pointer(&q.to)), ptr,
	})
	a := &q.answers
	return Place{uint32(a[0]), int32(a[1]), a[2], a[3]}, err
}

// MemcpyHtoDAsync copies to the device in a stream's order. Memory that is not
// pinned has been read when it returns.
func (d *Driver) MemcpyHtoDAsync(dst uintptr, src unsafe.Pointer, bytes, stream uintptr) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return d.call(fr, fnMemcpyHtoDAsync, dst, fr.Hold(0, src), bytes, stream)
}

// MemcpyDtoHAsync copies from the device in a stream's order. Memory that is
// not pinned has been written when it returns.
func (d *Driver) MemcpyDtoHAsync(dst unsafe.Pointer, src, bytes, stream uintptr) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return d.call(fr, fnMemcpyDtoHAsync, fr.Hold(0, dst), src, bytes, stream)
}

// MemcpyDtoDAsync copies on the device in a stream's order.
func (d *Driver) MemcpyDtoDAsync(dst, src, bytes, stream uintptr) error {
	return d.simple(fnMemcpyDtoDAsync, dst, src, bytes, stream)
}

// MemcpyPeerAsync copies between devices in a stream's order.
func (d *Driver) MemcpyPeerAsync(dst, dstCtx, src, srcCtx, bytes, stream uintptr) error {
	return d.simple(fnMemcpyPeerAsync, dst, dstCtx, src, srcCtx, bytes, stream)
}

// MemsetAsync fills n elements of 1, 2, 4 or 8 bytes in a stream's order.
func (d *Driver) MemsetAsync(dst uintptr, value uint64, size, n, stream uintptr) error {
	switch size {
	case 1:
		return d.simple(fnMemsetD8Async, dst, uintptr(uint8(value)), n, stream)
	case 2:
		return d.simple(fnMemsetD16Async, dst, uintptr(uint16(value)), n, stream)
	case 4:
		return d.simple(fnMemsetD32Async, dst, uintptr(uint32(value)), n, stream)
	}
	if uint32(value) == uint32(value>>32) {
		return d.simple(fnMemsetD32Async, dst, uintptr(uint32(value)), 2*n, stream)
	}
	// The driver has no fill of 8 bytes: two columns of 4, 8 bytes apart.
	err := d.simple(fnMemsetD2D32Async, dst, 8, uintptr(uint32(value)), 1, n, stream)
	if err != nil {
		return err
	}
	return d.simple(fnMemsetD2D32Async, dst+4, 8, uintptr(uint32(value>>32)), 1, n, stream)
}

// poolProps is CUmemPoolProps: pinned memory on one device, shared with nobody.
type poolProps struct {
	allocType, handleTypes   int32
	locationType, locationID int32
	security                 uintptr
	maxSize                  uintptr
	usage                    uint16
	_                        [54]byte
}

// MemPoolCreate makes a pool of stream-ordered memory on a device. Max bounds
// its bytes; 0 leaves that to the driver.
func (d *Driver) MemPoolCreate(ordinal int, limit uintptr) (uintptr, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	props := &poolProps{allocType: 1, locationType: 1, locationID: int32(ordinal), maxSize: limit}
	err := d.call(fr, fnMemPoolCreate, fr.Out(0), fr.Hold(0, unsafe.Pointer(props)))
	return uintptr(fr.Result(0)), err
}

// MemPoolDestroy ends a pool; its memory goes when the last of it is freed.
func (d *Driver) MemPoolDestroy(pool uintptr) error { return d.simple(fnMemPoolDestroy, pool) }

// MemPoolKeep sets how many freed bytes a pool keeps when a stream is
// synchronized.
func (d *Driver) MemPoolKeep(pool uintptr, bytes uint64) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return d.call(fr, fnMemPoolSetAttribute, pool, poolReleaseThreshold, fr.Hold(0, unsafe.Pointer(&bytes)))
}

// MemPoolTrim gives freed memory beyond that many bytes back.
func (d *Driver) MemPoolTrim(pool, keep uintptr) error {
	return d.simple(fnMemPoolTrimTo, pool, keep)
}

// MemAllocAsync allocates in a stream's order, from a pool or, if that is 0,
// the device's own.
func (d *Driver) MemAllocAsync(bytes, pool, stream uintptr) (uintptr, error) {
	if pool == 0 {
		return d.made(fnMemAllocAsync, bytes, stream)
	}
	return d.made(fnMemAllocFromPoolAsync, bytes, pool, stream)
}

// MemFreeAsync frees in a stream's order.
func (d *Driver) MemFreeAsync(ptr, stream uintptr) error {
	return d.simple(fnMemFreeAsync, ptr, stream)
}
