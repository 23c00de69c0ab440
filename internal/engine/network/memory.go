package network

import (
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// The engine's own memory, by what it is for.
const (
	forSegment = iota // a segment that was received and is not combined yet
	forWork           // blocks or partial results
	forPart           // this rank's part of a result
	forPack           // what goes into one frame
	forBatch          // the calls that are carried out together
	numScratch
)

// room returns memory for n elements. It is the same memory whenever it is for
// the same.
func (e *Engine) room(use, n int, t kernel.DType) engine.Mem { return e.scratch[use].Room(n, t) }

// A layout is memory that has a part for every rank.
type layout struct {
	mem   engine.Mem
	parts []engine.Mem // in place of mem, for an uneven form
	ranks int
	unit  int // elements; parts begin at multiples of it
}

// shares divides m among the ranks as verbs do: into equal parts, or as the
// list of an uneven form says.
func (e *Engine) shares(m engine.Mem, parts []engine.Mem) layout {
	return layout{m, parts, e.size, 1}
}

// lineBytes is a cache line.
const lineBytes = 64

// divided divides m, of any length, among the ranks. Parts begin at cache lines
// if m does.
func (e *Engine) divided(m engine.Mem) layout {
	return layout{m, nil, e.size, lineBytes / m.Type.Size()}
}

// at is rank r's part.
func (l *layout) at(r int) engine.Mem {
	if l.parts != nil {
		return l.parts[r]
	}
	return l.span(r, r+1)
}

// span is the parts of the ranks from r to s-1, which lie in a row.
func (l *layout) span(r, s int) engine.Mem {
	lo := l.begin(r)
	return l.mem.Slice(lo, l.begin(s)-lo)
}

func (l *layout) begin(r int) int {
	units := (l.mem.N + l.unit - 1) / l.unit
	return min(r*units/l.ranks*l.unit, l.mem.N)
}

// longest is the number of elements of the longest part.
func (l *layout) longest() int {
	n := 0
	for r := range l.ranks {
		n = max(n, l.at(r).N)
	}
	return n
}

// mod is i modulo the number of ranks, for an i that is not too negative.
func (e *Engine) mod(i int) int { return (i + 2*e.size) % e.size }

// takeOwn copies this rank's share of a call whose counts are uneven, and
// checks it: no frame does.
func (e *Engine) takeOwn(dst, src engine.Mem) error {
	if dst.N != src.N {
		return e.wrongCount(e.rank, dst.Bytes(), src.Bytes())
	}
	engine.Copy(dst, src)
	return nil
}
