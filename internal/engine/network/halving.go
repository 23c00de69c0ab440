package network

import (
	"math/bits"

	"github.com/tutti-go/tutti/internal/engine"
)

// fold reduces any number of ranks to a power of two. Of the first 2*extra ranks,
// each odd rank hands its work to the even rank before it. The other ranks are
// active: they are numbered anew, and own the parts of the ranks that they stand
// for.
type fold struct {
	// number of active ranks: a power of two
	active int // a power of two
	extra  int // number of ranks that are not active
}

func newFold(ranks int) fold {
	left := 1 << (bits.Len(uint(ranks)) - 1)
	return fold{left, ranks - left}
}

// folded reports whether a rank hands its work to the rank before it.
func (f fold) folded(rank int) bool { return rank < 2*f.extra && rank%2 == 1 }

// absorbs reports whether a rank does the work of the rank after it.
func (f fold) absorbs(rank int) bool { return rank < 2*f.extra && rank%2 == 0 }

// number returns the number of an active rank.
func (f fold) number(rank int) int {
	if rank < 2*f.extra {
		return rank / 2
	}
	return rank - f.extra
}

// rank returns the rank with a number. It also owns the first of its parts: number
// v owns the parts from rank(v) to rank(v+1)-1.
func (f fold) rank(number int) int {
	if number < f.extra {
		return 2 * number
	}
	return number + f.extra
}

// half is one round of halving: the numbers whose parts a rank keeps, and those
// whose parts it sends to its partner. Ranges end before Last.
type half struct {
	partner             int
	keepFirst, keepLast int
	sendFirst, sendLast int
}

// halve returns the round after which a number owns the parts of width numbers.
func halve(number, width int) half {
	first := number &^ (2*width - 1)
	mid, last := first+width, first+2*width
	if number&width == 0 {
		return half{number ^ width, first, mid, mid, last}
	}
	return half{number ^ width, mid, last, first, mid}
}

// doubling combines m on all ranks by recursive doubling. After the round with
// distance d, groups of 2d ranks have the same result. Both partners combine the
// same two values; the order does not change the bits.
func (e *Engine) doubling(r *reduction, m engine.Mem) error {
	f := newFold(e.size)
	if f.folded(e.rank) {
		return e.runFolded(m)
	}
	if err := e.foldIn(r, f, m); err != nil {
		return err
	}
	me := f.number(e.rank)
	for d := 1; d < f.active; d *= 2 {
		peer := f.rank(me ^ d)
		if err := e.swapReduce(r, peer, m, peer, m, m); err != nil {
			return err
		}
	}
	return e.foldOut(f, m)
}

// halvingDoubling combines all parts of m on all ranks: recursive halving combines
// each part on one rank, and recursive doubling copies it to the others.
func (e *Engine) halvingDoubling(r *reduction, m *layout) error {
	f := newFold(e.size)
	if f.folded(e.rank) {
		return e.runFolded(m.mem)
	}
	if err := e.foldIn(r, f, m.mem); err != nil {
		return err
	}
	if err := e.halving(r, f, m); err != nil {
		return err
	}
	me := f.number(e.rank)
	for width := 1; width < f.active; width *= 2 {
		h := halve(me, width)
		peer := f.rank(h.partner)
		kept, sent := m.span(f.rank(h.keepFirst), f.rank(h.keepLast)), m.span(f.rank(h.sendFirst), f.rank(h.sendLast))
		if err := e.swap(peer, kept, peer, sent); err != nil {
			return err
		}
	}
	return e.foldOut(f, m.mem)
}

// halvingScatter combines each part of src on one rank, in scratch memory, and
// copies this rank's part to dst.
func (e *Engine) halvingScatter(r *reduction, src *layout, dst engine.Mem) error {
	work := *src
	work.mem = e.scratchMem(forWork, src.mem.N, src.mem.Type)
	r.load(work.mem, src.mem)
	loaded := r.loaded()
	f := newFold(e.size)
	if f.folded(e.rank) {
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
	if f.absorbs(e.rank) {
		return e.send(e.rank+1, work.at(e.rank+1))
	}
	return nil
}

// halving is recursive halving: it leaves this rank with the combined parts of its
// number.
func (e *Engine) halving(r *reduction, f fold, m *layout) error {
	me := f.number(e.rank)
	for width := f.active / 2; width > 0; width /= 2 {
		h := halve(me, width)
		peer := f.rank(h.partner)
		sent, kept := m.span(f.rank(h.sendFirst), f.rank(h.sendLast)), m.span(f.rank(h.keepFirst), f.rank(h.keepLast))
		if err := e.swapReduce(r, peer, sent, peer, kept, kept); err != nil {
			return err
		}
	}
	return nil
}

// runFolded runs the part of a rank that is folded into the rank before it: it
// sends its source and receives the result.
func (e *Engine) runFolded(m engine.Mem) error {
	if err := e.sendSegments(e.rank-1, m); err != nil {
		return err
	}
	return e.recv(e.rank-1, m)
}

// foldIn combines the source of the rank after this one, if that rank is folded.
func (e *Engine) foldIn(r *reduction, f fold, m engine.Mem) error {
	if !f.absorbs(e.rank) {
		return nil
	}
	return e.swapReduce(r, noRank, engine.Mem{}, e.rank+1, m, m)
}

// foldOut sends the result to the rank after this one, if that rank is folded.
func (e *Engine) foldOut(f fold, m engine.Mem) error {
	if !f.absorbs(e.rank) {
		return nil
	}
	return e.send(e.rank+1, m)
}
