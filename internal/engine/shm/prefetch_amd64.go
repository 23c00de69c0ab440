package shm

import "unsafe"

// prefetchWrite asks for cache lines that will be written soon and does not wait
// for them. Processors without PREFETCHW ignore it.
//
//go:noescape
func prefetchWrite(p unsafe.Pointer, bytes int)

// prefetchRead asks for cache lines that will be read soon and does not wait for
// them. bytes must be at least one.
//
//go:noescape
func prefetchRead(p unsafe.Pointer, bytes int)
