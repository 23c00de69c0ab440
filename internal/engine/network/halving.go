package network

import (
	"math/bits"

	"github.com/tutti-go/tutti/internal/engine"
)

// A fold makes a power of two of any number of ranks: of the first 2*extra
// ranks, the odd ones hand their work to the even ones. The ranks that are left
// are numbered anew, and have the parts of those that they stand for.
type fold struct {
	left  int // a power of two
	extra int
}

func newFold(ranks int) fold {
	left := 1 << (bits.Len(uint(ranks)) - 1)
	return fold{left, ranks - left}
}

// out reports whether a rank hands its work to the one before it.
func (f fold) out(rank int) bool { return rank < 2*f.extra && rank%2 == 1 }

// in reports whether a rank does the work of the one after it.
func (f fold) in(rank int) bool { return rank < 2*f.extra && rank%2 == 0 }

// number is the new number of a rank that is left.
func (f fold) number(rank int) int {
	if rank < 2*f.extra {
		return rank / 2
	}
	return rank - f.extra
}

// rank is the rank that has a number. It is also the first of its parts: those
// of number v are from rank(v) to rank(v+1)-1.
func (f fold) rank(number int) int {
	if number < f.extra {
		return 2 * number
	}
	return number + f.extra
}

// A half is one round of halving: what a rank keeps of the numbers it has had so
// far, from first to last-1, and what it gives to its partner.
type half struct {
	partner               int
	keepFirst, keepLast   int
	givenFirst, givenLast int
}

// halve is the round after which a number is left with width others.
func halve(number, width int) half {
	first := number &^ (2*width - 1)
	mid, last := first+width, first+2*width
	if number&width == 0 {
		return half{number ^ width, first, mid, mid, last}
	}
	return half{number ^ width, mid, last, first, mid}
}

// doubling combines m on all ranks: after the round with distance d, groups of
// 2d ranks have the same sum. Partners add the same two numbers, in whatever
// order: the bits do not depend on it.
func (e *Engine) doubling(r *reduction, m engine.Mem) error {
	f := newFold(e.size)
	if f.out(e.rank) {
		return e.sitOut(m)
	}
	if err := e.foldIn(r, f, m); err != nil {
		return err
	}
	me := f.number(e.rank)
	for d := 1; d < f.left; d *= 2 {
		peer := f.rank(me ^ d)
		if err := e.swapReduce(r, peer, m, peer, m, m); err != nil {
			return err
		}
	}
	return e.foldOut(f, m)
}

// halvingDoubling combines all parts of m on all ranks: each part on one of
// them, which then passes it on.
func (e *Engine) halvingDoubling(r *reduction, m *layout) error {
	f := newFold(e.size)
	if f.out(e.rank) {
		return e.sitOut(m.mem)
	}
	if err := e.foldIn(r, f, m.mem); err != nil {
		return err
	}
	if err := e.halving(r, f, m); err != nil {
		return err
	}
	me := f.number(e.rank)
	for width := 1; width < f.left; width *= 2 {
		h := halve(me, width)
		peer := f.rank(h.partner)
		kept, given := m.span(f.rank(h.keepFirst), f.rank(h.keepLast)), m.span(f.rank(h.givenFirst), f.rank(h.givenLast))
		if err := e.swap(peer, kept, peer, given); err != nil {
			return err
		}
	}
	return e.foldOut(f, m.mem)
}

// halvingScatter combines each part of src on one rank, in memory of the
// engine's own, and leaves this rank's in dst.
func (e *Engine) halvingScatter(r *reduction, src *layout, dst engine.Mem) error {
	work := *src
	work.mem = e.room(forWork, src.mem.N, src.mem.Type)
	r.load(work.mem, src.mem)
	loaded := r.loaded()
	f := newFold(e.size)
	if f.out(e.rank) {
		if err := e.sendSegments(e.rank-1, work.mem); err != nil {
			return err
		}
		return e.recv(e.rank-1, dst)
	}
	if err := e.foldIn(&loaded, f, work.mem); err != nil {
		return err
	}
	if err := e.halving(&loaded, f, &work); err != nil {
		return err
	}
	engine.Copy(dst, work.at(e.rank))
	if f.in(e.rank) {
		return e.send(e.rank+1, work.at(e.rank+1))
	}
	return nil
}

// halving leaves this rank with the combined parts of its number.
func (e *Engine) halving(r *reduction, f fold, m *layout) error {
	me := f.number(e.rank)
	for width := f.left / 2; width > 0; width /= 2 {
		h := halve(me, width)
		peer := f.rank(h.partner)
		given, kept := m.span(f.rank(h.givenFirst), f.rank(h.givenLast)), m.span(f.rank(h.keepFirst), f.rank(h.keepLast))
		if err := e.swapReduce(r, peer, given, peer, kept, kept); err != nil {
			return err
		}
	}
	return nil
}

// sitOut is the part of a rank that is folded into the one before it.
func (e *Engine) sitOut(m engine.Mem) error {
	if err := e.sendSegments(e.rank-1, m); err != nil {
		return err
	}
	return e.recv(e.rank-1, m)
}

// foldIn takes over the work of the rank after this one, if it sits out.
func (e *Engine) foldIn(r *reduction, f fold, m engine.Mem) error {
	if !f.in(e.rank) {
		return nil
	}
	return e.swapReduce(r, nobody, engine.Mem{}, e.rank+1, m, m)
}

// foldOut gives the result to the rank that sat out.
func (e *Engine) foldOut(f fold, m engine.Mem) error {
	if !f.in(e.rank) {
		return nil
	}
	return e.send(e.rank+1, m)
}
