package hier

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
)

// A piece is n consecutive elements of a call, from element lo on.
type piece struct {
	c     *engine.Call
	lo, n int
}

// slice returns the piece's elements of a buffer of the call.
func (p *piece) slice(m engine.Mem) engine.Mem { return m.Slice(p.lo, p.n) }

// A pieceIter divides the elements of calls into pieces, in order.
type pieceIter struct {
	calls []engine.Call
	lo    int // the first element of calls[0] that no piece holds yet
}

func (p *pieceIter) hasNext() bool { return len(p.calls) > 0 }

// remaining returns the number of bytes of the first call that no piece holds yet.
func (p *pieceIter) remaining() int { return p.calls[0].Src.Bytes() - p.lo*p.calls[0].Src.Type.Size() }

// next returns a piece of at most the given number of bytes, and at least one element. A
// call without elements has one empty piece: without a step, a rank that makes a different
// call would not be detected.
func (p *pieceIter) next(bytes int) piece {
	c := &p.calls[0]
	out := piece{c, p.lo, min(c.Src.N-p.lo, max(bytes/c.Src.Type.Size(), 1))}
	if p.lo += out.n; p.lo == c.Src.N {
		p.calls, p.lo = p.calls[1:], 0
	}
	return out
}

// nextSegment returns the next segment in list's memory: one piece of a long call, or several
// short calls that fit into Options.Segment together.
func (e *Engine) nextSegment(list []piece, p *pieceIter) []piece {
	list = list[:0]
	for room := e.opt.Segment; p.hasNext() && (len(list) == 0 || p.remaining() <= room); {
		next := p.next(room)
		list = append(list, next)
		room -= next.slice(next.c.Src).Bytes()
	}
	return list
}

// allReduce pipelines the segments. One step of the local group broadcasts the result of a
// segment and reduces the next segment.
func (e *Engine) allReduce(ctx context.Context, calls []engine.Call) *engine.Failure {
	p := pieceIter{calls: calls}
	now, next := &e.segments[0], &e.segments[1]
	*now = e.nextSegment(*now, &p)
	e.addSegmentReduce(*now)
	if f := e.runSteps(ctx, &e.localGroup); f != nil {
		return f
	}
	for len(*now) > 0 {
		if f := e.reduceSegment(ctx, *now); f != nil {
			return f
		}
		*next = e.nextSegment(*next, &p)
		e.addSegmentReduce(*next)
		for i := range *now {
			w := &(*now)[i]
			e.addLocalBroadcast(w.c, w.slice(w.c.Dst))
		}
		if f := e.runSteps(ctx, &e.localGroup); f != nil {
			return f
		}
		now, next = next, now
	}
	return nil
}

// addSegmentReduce adds the local reductions of a segment.
func (e *Engine) addSegmentReduce(list []piece) {
	for i := range list {
		w := &list[i]
		e.addLocalReduce(w.c, w.slice(w.c.Src), w.slice(w.c.Dst))
	}
}

// reduceSegment combines the segment's local results across hosts. On ranks that are not
// leaders it does nothing.
func (e *Engine) reduceSegment(ctx context.Context, list []piece) *engine.Failure {
	if !e.isLeader() {
		return nil
	}
	for i := range list {
		w := &list[i]
		m := w.slice(w.c.Dst)
		e.leaderGroup.add(engine.Call{Verb: engine.AllReduce, ReduceOp: leaderOp(w.c), Of: w.c, Src: m, Dst: m})
	}
	return e.runSteps(ctx, &e.leaderGroup)
}
