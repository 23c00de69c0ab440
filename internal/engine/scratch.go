package engine

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/kernel"
)

// Scratch is memory that an engine keeps for its next operation.
type Scratch []uint64

// KeepBytes is how much is kept.
const KeepBytes = 4 << 20

// Room returns memory for n elements, the same each time.
func (s *Scratch) Room(n int, t kernel.DType) Mem {
	words := (n*t.Size() + 7) / 8
	if len(*s) < words {
		*s = make([]uint64, words)
	}
	return Mem{Ptr: unsafe.Pointer(unsafe.SliceData(*s)), N: n, Type: t}
}

// Trim lets go of memory that is too large to keep.
func (s *Scratch) Trim() {
	if 8*len(*s) > KeepBytes {
		*s = nil
	}
}
