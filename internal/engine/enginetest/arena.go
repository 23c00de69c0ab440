package enginetest

import (
	"bytes"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// guardBytes are before and behind every buffer. An engine must not change them.
const guardBytes = 64

// Patterns of memory before anything was written to it, and after everything was
// read.
var (
	blank = bytes.Repeat([]byte{0xC5}, 4<<10)
	guard = bytes.Repeat([]byte{0x9E}, 4<<10)
	spoil = bytes.Repeat([]byte{0x3A}, 4<<10)
)

// fillPattern fills b with a pattern. It copies, because the race detector handles
// one access to a range faster than many to its bytes.
func fillPattern(b, pattern []byte) {
	for len(b) > 0 {
		b = b[copy(b, pattern):]
	}
}

// hasPattern reports whether b still holds the pattern.
func hasPattern(b, pattern []byte) bool {
	for len(b) > 0 {
		n := min(len(b), len(pattern))
		if !bytes.Equal(b[:n], pattern[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

// newBytes returns zeroed memory with the alignment of any element type.
func newBytes(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

// elements returns bytes as elements.
func elements[T any](b []byte) []T {
	var e T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(e)))
}

// memOf describes bytes to an engine.
func memOf(b []byte, t kernel.DType) engine.Mem {
	return engine.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(b)), N: len(b) / t.Size(), Type: t}
}

// buffer is memory between two guards.
type buffer struct {
	all  []byte
	data []byte
}

// intact reports whether the guards are unchanged.
func (b *buffer) intact() bool {
	before := len(b.all) - cap(b.data)
	return hasPattern(b.all[:before], guard) && hasPattern(b.all[before+len(b.data):], guard)
}

// arena allocates the buffers of one operation. The next operation reuses the
// memory.
type arena struct {
	chunk   []byte
	free    []byte
	buffers []buffer
}

// take returns n blank bytes for elements of the given size, with guard bytes on both sides. Buffers are
// aligned for the element and for nothing more. Only the rank's own goroutine uses its arena.
func (a *arena) take(n, size int) []byte {
	skew := len(a.buffers) % 7 * size
	need := (2*guardBytes + skew + n + 7) / 8 * 8
	if need > len(a.free) {
		a.chunk = newBytes(max(need, 2*len(a.chunk)))
		a.free = a.chunk
	}
	all := a.free[:need:need]
	a.free = a.free[need:]
	lo := guardBytes + skew
	b := buffer{all, all[lo : lo+n]}
	fillPattern(all[:lo], guard)
	fillPattern(b.data, blank)
	fillPattern(all[lo+n:], guard)
	a.buffers = append(a.buffers, b)
	return b.data
}

// overwrite fills all buffers with a pattern.
func (a *arena) overwrite() {
	for i := range a.buffers {
		fillPattern(a.buffers[i].all, spoil)
	}
}

// reset frees all buffers.
func (a *arena) reset() {
	a.free = a.chunk
	a.buffers = a.buffers[:0]
}
