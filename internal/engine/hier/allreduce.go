package hier

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
)

// A piece is a run of the elements of a call.
type piece struct {
	c     *engine.Call
	lo, n int
}

func (p *piece) of(m engine.Mem) engine.Mem { return m.Slice(p.lo, p.n) }

// pieces goes through the elements of calls.
type pieces struct {
	calls []engine.Call
	lo    int // where in the first call
}

func (p *pieces) more() bool { return len(p.calls) > 0 }

// left is how many bytes there are from here to the end of the call.
func (p *pieces) left() int { return p.calls[0].Src.Bytes() - p.lo*p.calls[0].Src.Type.Size() }

// next is the next run of at most so many bytes, but at least one element. Even
// a call without elements has one run, so that whoever calls something else
// finds out.
func (p *pieces) next(bytes int) piece {
	c := &p.calls[0]
	out := piece{c, p.lo, min(c.Src.N-p.lo, max(bytes/c.Src.Type.Size(), 1))}
	if p.lo += out.n; p.lo == c.Src.N {
		p.calls, p.lo = p.calls[1:], 0
	}
	return out
}

// wave is a segment of a long call, or several short ones that fit into one.
func (e *Engine) wave(list []piece, p *pieces) []piece {
	list = list[:0]
	for room := e.opt.Segment; p.more() && (len(list) == 0 || p.left() <= room); {
		next := p.next(room)
		list = append(list, next)
		room -= next.of(next.c.Src).Bytes()
	}
	return list
}

// allReduce goes in waves: while the leaders work on one, the ranks of their
// hosts fetch the one before.
func (e *Engine) allReduce(ctx context.Context, calls []engine.Call) *engine.Failure {
	p := pieces{calls: calls}
	now, next := &e.waves[0], &e.waves[1]
	*now = e.wave(*now, &p)
	e.collectWave(*now)
	if f := e.take(ctx, &e.inside); f != nil {
		return f
	}
	for len(*now) > 0 {
		if f := e.combineWave(ctx, *now); f != nil {
			return f
		}
		*next = e.wave(*next, &p)
		e.collectWave(*next)
		for i := range *now {
			w := &(*now)[i]
			e.give(w.c, w.of(w.c.Dst))
		}
		if f := e.take(ctx, &e.inside); f != nil {
			return f
		}
		now, next = next, now
	}
	return nil
}

func (e *Engine) collectWave(list []piece) {
	for i := range list {
		w := &list[i]
		e.collect(w.c, w.of(w.c.Src), w.of(w.c.Dst))
	}
}

// combineWave is the leaders' part.
func (e *Engine) combineWave(ctx context.Context, list []piece) *engine.Failure {
	if !e.leads() {
		return nil
	}
	for i := range list {
		w := &list[i]
		m := w.of(w.c.Dst)
		e.across.add(engine.Call{Verb: engine.AllReduce, Red: between(w.c), Of: w.c, Src: m, Dst: m})
	}
	return e.take(ctx, &e.across)
}
