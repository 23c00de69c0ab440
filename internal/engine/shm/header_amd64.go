//go:build !race

package shm

import "unsafe"

// put writes the head, its step last. The others may be looking at the line all
// the time, and take it away after any store; these come so close to each other
// that it goes to them once. The processor keeps stores in order. A store of
// sync/atomic would do that, too, but also wait until the others have let go of
// the line. The function is not inlined, so that the compiler keeps the order.
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
