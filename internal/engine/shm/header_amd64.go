//go:build !race

package shm

import "unsafe"

// put copies from to the slot, the step last. The other ranks poll this cache line,
// and each of their loads can take the line away between two stores. Plain stores
// in a row leave little time for that, so the line usually moves once.
//
// On amd64 the processor does not reorder stores, so a rank that sees the step sees
// the rest of the line and all earlier stores. An atomic store would also order
// them, but it would wait until the line has arrived. The function is not inlined,
// so that the compiler keeps the order.
//
//go:noinline
func (h *header) put(from *header, step uint64) {
	dst, src := (*[8]uint64)(unsafe.Pointer(h)), (*[8]uint64)(unsafe.Pointer(from))
	dst[7] = src[7]
	dst[6] = src[6]
	dst[5] = src[5]
	dst[4] = src[4]
	dst[3] = src[3]
	dst[2] = src[2]
	dst[1] = src[1]
	dst[0] = step
}
