package shm

import "unsafe"

// claim asks for cache lines that will be written soon, and does not wait for
// them: they are taken from the cores that have read them. Processors that
// cannot do that do nothing.
//
//go:noescape
func prefetchWrite(p unsafe.Pointer, bytes int)

// want asks for cache lines that will be read soon, and does not wait for them.
// There must be at least one byte.
//
//go:noescape
func prefetchRead(p unsafe.Pointer, bytes int)
