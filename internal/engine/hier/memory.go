package hier

import (
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// The scratch buffers, all but the last of a leader: indexes into Engine.scratch.
const (
	sumScratch    = iota // combined elements of this host
	blockScratch         // one block per rank, in the order of layout.order
	beforeScratch        // of every rank: combined elements of the hosts before this one
	numScratch
)

// scratchFor returns a scratch buffer of n elements. A later call with the same index returns
// the same memory.
func (e *Engine) scratchFor(use, n int, t kernel.DType) engine.Mem { return e.scratch[use].Room(n, t) }

// releaseBuffers drops references to the caller's memory, the steps that a failure left over,
// and scratch buffers that are too large to keep.
func (e *Engine) releaseBuffers() {
	for _, p := range []*subgroup{&e.localGroup, &e.leaderGroup} {
		clear(p.steps)
		p.steps = p.steps[:0]
	}
	for i := range e.segments {
		clear(e.segments[i])
	}
	clear(e.hostShares)
	clear(e.rootShares)
	for i := range e.scratch {
		e.scratch[i].Trim()
	}
}
