package shm

import "unsafe"

// claim asks for cache lines that will be written soon, and does not wait for
// them: they are taken from the cores that have read them. Processors that
// cannot do that do nothing.
//
//go:noescape
func claim(p unsafe.Pointer, bytes int)
