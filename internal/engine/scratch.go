package engine

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/kernel"
)

// Scratch is memory that an engine reuses in later operations.
type Scratch []uint64

// KeepBytes is the size in bytes of the largest Scratch that Trim keeps.
const KeepBytes = 4 << 20

// Room returns memory for n elements. The next call returns the same memory or, if it needs
// more, new memory.
func (s *Scratch) Room(n int, t kernel.DType) Mem {
	words := (n*t.Size() + 7) / 8
	if len(*s) < words {
		*s = make([]uint64, words)
	}
	return Mem{Ptr: unsafe.Pointer(unsafe.SliceData(*s)), N: n, Type: t}
}

// Trim drops memory that is larger than KeepBytes.
func (s *Scratch) Trim() {
	if 8*len(*s) > KeepBytes {
		*s = nil
	}
}
