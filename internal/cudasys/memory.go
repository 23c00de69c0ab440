package cudasys

import (
	"sync"
	"unsafe"

	"github.com/tutti-go/tutti/internal/dl"
)

// Flags of host memory, memory types, and the attribute of pools that is used.
const (
	HostPortable = 1
	HostMapped   = 2

	MemoryTypeHost   = 1
	MemoryTypeDevice = 2

	poolReleaseThreshold = 4
)

// MemInfo returns the free and the total bytes of the current context's device.
func (d *Driver) MemInfo() (free, total uint64, err error) {
	fr := dl.NewFrame()
	defer fr.Done()
	err = d.call(fr, fnMemGetInfo, fr.Out(0), fr.Out(1))
	return fr.Result(0), fr.Result(1), err
}

// MemAlloc allocates device memory.
func (d *Driver) MemAlloc(bytes uintptr) (uintptr, error) { return d.out1(fnMemAlloc, bytes) }

// MemFree waits for the device and frees device memory.
func (d *Driver) MemFree(ptr uintptr) error { return d.simple(fnMemFree, ptr) }

// MemHostAlloc allocates pinned host memory.
func (d *Driver) MemHostAlloc(bytes uintptr, flags uint32) (uintptr, error) {
	return d.out1(fnMemHostAlloc, bytes, uintptr(flags))
}

// MemFreeHost frees pinned host memory.
func (d *Driver) MemFreeHost(ptr uintptr) error { return d.simple(fnMemFreeHost, ptr) }

// MemHostRegister pins host memory that was not allocated by CUDA.
func (d *Driver) MemHostRegister(ptr unsafe.Pointer, bytes uintptr, flags uint32) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return d.call(fr, fnMemHostRegister, fr.Hold(0, ptr), bytes, uintptr(flags))
}

// MemHostUnregister undoes MemHostRegister.
func (d *Driver) MemHostUnregister(ptr unsafe.Pointer) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return d.call(fr, fnMemHostUnregister, fr.Hold(0, ptr))
}

// MemHostDevicePointer returns the address of pinned host memory on the device.
func (d *Driver) MemHostDevicePointer(ptr uintptr) (uintptr, error) {
	return d.out1(fnMemHostGetDevicePointer, ptr, 0)
}

// A Place describes the memory at an address. It is zero if the driver does not know the
// address.
type Place struct {
	Kind        uint32 // MemoryTypeHost, MemoryTypeDevice, ...
	Device      int32
	Start, Size uint64 // of the allocation
}

// placeAttributes lists the pointer attributes in the order of Place's fields: memory type, device
// ordinal, start and size of the range.
var placeAttributes = [4]int32{2, 9, 11, 12}

// A pointerQuery holds the arguments of cuPointerGetAttributes. It is on the heap because C
// writes to it.
type pointerQuery struct {
	attributes [len(placeAttributes)]int32
	answers    [len(placeAttributes)]uint64
	to         [len(placeAttributes)]*uint64
}

var pointerQueries = sync.Pool{New: func() any {
	q := &pointerQuery{attributes: placeAttributes}
	for i := range q.to {
		q.to[i] = &q.answers[i]
	}
	return q
}}

// Place describes the memory at an address. The bracket makes a context current.
func (d *Driver) Place(in *dl.Bracket, ptr uintptr) (Place, error) {
	q := pointerQueries.Get().(*pointerQuery)
	defer pointerQueries.Put(q)
	clear(q.answers[:])
	err := d.callIn(in, fnPointerGetAttributes, &dl.Args{
		uintptr(len(placeAttributes)), uintptr(unsafe.Pointer(&q.attributes)), uintptr(unsafe.Pointer(&q.to)), ptr,
	})
	a := &q.answers
	return Place{uint32(a[0]), int32(a[1]), a[2], a[3]}, err
}

// MemcpyHtoDAsync copies to the device in the order of a stream. Pageable memory has been
// read when it returns.
func (d *Driver) MemcpyHtoDAsync(dst uintptr, src unsafe.Pointer, bytes, stream uintptr) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return d.call(fr, fnMemcpyHtoDAsync, dst, fr.Hold(0, src), bytes, stream)
}

// MemcpyDtoHAsync copies from the device in the order of a stream. Pageable memory has been
// written when it returns.
func (d *Driver) MemcpyDtoHAsync(dst unsafe.Pointer, src, bytes, stream uintptr) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return d.call(fr, fnMemcpyDtoHAsync, fr.Hold(0, dst), src, bytes, stream)
}

// MemcpyDtoDAsync copies on a device in the order of a stream.
func (d *Driver) MemcpyDtoDAsync(dst, src, bytes, stream uintptr) error {
	return d.simple(fnMemcpyDtoDAsync, dst, src, bytes, stream)
}

// MemcpyPeerAsync copies between devices in the order of a stream.
func (d *Driver) MemcpyPeerAsync(dst, dstCtx, src, srcCtx, bytes, stream uintptr) error {
	return d.simple(fnMemcpyPeerAsync, dst, dstCtx, src, srcCtx, bytes, stream)
}

// MemsetAsync fills n elements of 1, 2, 4 or 8 bytes in the order of a stream.
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
	// The driver has no fill of 8 bytes: fill two columns of 4 bytes with a pitch of 8.
	err := d.simple(fnMemsetD2D32Async, dst, 8, uintptr(uint32(value)), 1, n, stream)
	if err != nil {
		return err
	}
	return d.simple(fnMemsetD2D32Async, dst+4, 8, uintptr(uint32(value>>32)), 1, n, stream)
}

// poolProps is CUmemPoolProps: pinned memory on one device, not shared between processes.
type poolProps struct {
	allocType, handleTypes   int32
	locationType, locationID int32
	security                 uintptr
	maxSize                  uintptr
	usage                    uint16
	_                        [54]byte
}

// MemPoolCreate makes a memory pool on a device. limit bounds its bytes; 0 means the driver's
// limit.
func (d *Driver) MemPoolCreate(ordinal int, limit uintptr) (uintptr, error) {
	fr := dl.NewFrame()
	defer fr.Done()
	props := &poolProps{allocType: 1, locationType: 1, locationID: int32(ordinal), maxSize: limit}
	err := d.call(fr, fnMemPoolCreate, fr.Out(0), fr.Hold(0, unsafe.Pointer(props)))
	return uintptr(fr.Result(0)), err
}

// MemPoolDestroy destroys a pool. Memory from it stays valid until it is freed.
func (d *Driver) MemPoolDestroy(pool uintptr) error { return d.simple(fnMemPoolDestroy, pool) }

// MemPoolKeep sets how many freed bytes a pool keeps when a stream is synchronized.
func (d *Driver) MemPoolKeep(pool uintptr, bytes uint64) error {
	fr := dl.NewFrame()
	defer fr.Done()
	return d.call(fr, fnMemPoolSetAttribute, pool, poolReleaseThreshold, fr.Hold(0, unsafe.Pointer(&bytes)))
}

// MemPoolTrim returns freed memory beyond keep bytes to the device.
func (d *Driver) MemPoolTrim(pool, keep uintptr) error {
	return d.simple(fnMemPoolTrimTo, pool, keep)
}

// MemAllocAsync allocates in the order of a stream, from a pool, or from the device's default
// pool if pool is 0.
func (d *Driver) MemAllocAsync(bytes, pool, stream uintptr) (uintptr, error) {
	if pool == 0 {
		return d.out1(fnMemAllocAsync, bytes, stream)
	}
	return d.out1(fnMemAllocFromPoolAsync, bytes, pool, stream)
}

// MemFreeAsync frees in the order of a stream.
func (d *Driver) MemFreeAsync(ptr, stream uintptr) error {
	return d.simple(fnMemFreeAsync, ptr, stream)
}
