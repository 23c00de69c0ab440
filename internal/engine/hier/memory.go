package hier

import (
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// A leader's own memory, by what it is for.
const (
	forSum    = iota // combined elements
	forBlocks        // blocks, host by host
	numScratch
)

// room returns memory for n elements. It is the same memory whenever it is for
// the same.
func (e *Engine) room(use, n int, t kernel.DType) engine.Mem { return e.scratch[use].Room(n, t) }

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
	for i := range e.scratch {
		e.scratch[i].Trim()
	}
}
