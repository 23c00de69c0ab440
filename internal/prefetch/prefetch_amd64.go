package prefetch

import "unsafe"

// Write asks for cache lines that will be written soon and does not wait
// for them. Processors without PREFETCHW ignore it.
//
//go:noescape
func Write(p unsafe.Pointer, bytes int)

// Read asks for cache lines that will be read soon and does not wait for
// them. bytes must be at least one.
//
//go:noescape
func Read(p unsafe.Pointer, bytes int)
