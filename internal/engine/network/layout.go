package network

import (
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// Uses of scratch memory. Each use has one buffer.
const (
	forSegment = iota // a received segment that is not combined yet
	forWork           // blocks or partial results
	forPart           // this rank's part of a result
	forPack           // the contents of one frame
	forBatch          // the data of fused calls
	numScratch
)

// scratchMem returns memory for n elements. Calls with the same use return the same
// memory.
func (e *Engine) scratchMem(use, n int, t kernel.DType) engine.Mem { return e.scratch[use].Room(n, t) }

// layout is memory that has a part for every rank.
type layout struct {
	mem   engine.Mem
	parts []engine.Mem // in place of mem, for an uneven form
	ranks int
	unit  int // elements; parts begin at multiples of it
}

// shares divides m among the ranks as a verb does: into equal parts, or as parts
// says for an uneven form.
func (e *Engine) shares(m engine.Mem, parts []engine.Mem) layout {
	return layout{m, parts, e.size, 1}
}

// lineBytes is the size of a cache line.
const lineBytes = 64

// divided divides m, of any length, among the ranks. Parts begin at cache lines if
// m does.
func (e *Engine) divided(m engine.Mem) layout {
	return layout{m, nil, e.size, lineBytes / m.Type.Size()}
}

// at returns rank r's part.
func (l *layout) at(r int) engine.Mem {
	if l.parts != nil {
		return l.parts[r]
	}
	return l.span(r, r+1)
}

// span returns the parts of the ranks from r to s-1, which are adjacent.
func (l *layout) span(r, s int) engine.Mem {
	lo := l.begin(r)
	return l.mem.Slice(lo, l.begin(s)-lo)
}

// begin returns the first element of rank r's part.
func (l *layout) begin(r int) int {
	units := (l.mem.N + l.unit - 1) / l.unit
	return min(r*units/l.ranks*l.unit, l.mem.N)
}

// longest returns the number of elements of the longest part.
func (l *layout) longest() int {
	n := 0
	for r := range l.ranks {
		n = max(n, l.at(r).N)
	}
	return n
}

// mod returns i modulo the number of ranks, for i of at least -2 times that number.
func (e *Engine) mod(i int) int { return (i + 2*e.size) % e.size }

// copyOwn copies this rank's own share. It checks the count, which may differ in an
// uneven call and is in no frame.
func (e *Engine) copyOwn(dst, src engine.Mem) error {
	if dst.N != src.N {
		return e.wrongCount(e.rank, dst.Bytes(), src.Bytes())
	}
	engine.Copy(dst, src)
	return nil
}
