//go:build !race

package shmem

import (
	"sync/atomic"
	"unsafe"
)

// publish stores v in a word of shared memory. A rank that sees v sees all earlier stores.
//
// On amd64 the processor does not reorder stores. An atomic store would wait until the cache line
// has arrived, which takes as long as the whole transfer. The function is not inlined, so that the
// compiler keeps the order.
//
//go:noinline
func publish(word *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(word)) = v }
