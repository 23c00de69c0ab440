package enginetest

import (
	"bytes"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// guardBytes lie before and behind every buffer and must stay as they are.
const guardBytes = 64

// What memory holds before anything was written to it, and after everything
// was read.
var (
	blank = bytes.Repeat([]byte{0xC5}, 4<<10)
	guard = bytes.Repeat([]byte{0x9E}, 4<<10)
	spoil = bytes.Repeat([]byte{0x3A}, 4<<10)
)

// paint fills b with a pattern. It copies, because the race detector sees one
// access to a range faster than many to its bytes.
func paint(b, pattern []byte) {
	for len(b) > 0 {
		b = b[copy(b, pattern):]
	}
}

// isPainted reports whether b is as paint left it.
func isPainted(b, pattern []byte) bool {
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

// elements views bytes as elements.
func elements[T any](b []byte) []T {
	var e T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(e)))
}

// memOf describes bytes to an engine.
func memOf(b []byte, t kernel.DType) engine.Mem {
	return engine.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(b)), N: len(b) / t.Size(), Type: t}
}

// A buffer is memory between two guards.
type buffer struct {
	all  []byte
	data []byte
}

// intact reports whether nothing was written beside the buffer.
func (b *buffer) intact() bool {
	before := len(b.all) - cap(b.data)
	return isPainted(b.all[:before], guard) && isPainted(b.all[before+len(b.data):], guard)
}

// An arena is where the buffers of one operation come from. The memory is used
// again for the next one.
type arena struct {
	chunk   []byte
	free    []byte
	buffers []buffer
}

// take returns n blank bytes for elements of the given size. Buffers begin
// aligned for the element and for nothing more.
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
	paint(all[:lo], guard)
	paint(b.data, blank)
	paint(all[lo+n:], guard)
	a.buffers = append(a.buffers, b)
	return b.data
}

// spoil overwrites all that was taken.
func (a *arena) spoil() {
	for i := range a.buffers {
		paint(a.buffers[i].all, spoil)
	}
}

// reset takes everything back.
func (a *arena) reset() {
	a.free = a.chunk
	a.buffers = a.buffers[:0]
}
