package hier

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// A leader's own memory, by what it is for.
const (
	forSum    = iota // combined elements
	forBlocks        // blocks, host by host
	numScratch
)

// keepBytes is how much memory of each kind is kept for the next operation.
const keepBytes = 4 << 20

// room returns memory for n elements. It is the same memory whenever it is for
// the same.
func (e *Engine) room(use, n int, t kernel.DType) engine.Mem {
	words := (n*t.Size() + 7) / 8
	if len(e.scratch[use]) < words {
		e.scratch[use] = make([]uint64, words)
	}
	return engine.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(e.scratch[use])), N: n, Type: t}
}

// forget lets go of the caller's memory, of steps that a failure has left, and
// of memory that is too large to keep.
func (e *Engine) forget() {
	for _, p := range []*part{&e.inside, &e.across} {
		clear(p.steps)
		p.steps = p.steps[:0]
	}
	for i := range e.waves {
		clear(e.waves[i])
	}
	clear(e.shares)
	clear(e.handed)
	for i, s := range e.scratch {
		if 8*len(s) > keepBytes {
			e.scratch[i] = nil
		}
	}
}
