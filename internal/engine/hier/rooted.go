package hier

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
)

// reduce brings the combination of all sources to the root's leader, and from
// there to the root.
func (e *Engine) reduce(ctx context.Context, call []engine.Call) *engine.Failure {
	for all := (pieces{calls: call}); all.more(); {
		p := all.next(e.opt.Segment)
		if f := e.reducePiece(ctx, p.c, &p); f != nil {
			return f
		}
	}
	return nil
}

func (e *Engine) reducePiece(ctx context.Context, c *engine.Call, p *piece) *engine.Failure {
	src := p.of(c.Src)
	var sum engine.Mem
	switch {
	case e.rank == c.Root && e.leads():
		sum = p.of(c.Dst)
	case e.leads():
		sum = e.room(forSum, p.n, src.Type)
	}
	e.collect(c, src, sum)
	e.across.add(engine.Call{
		Verb: engine.Reduce, Red: between(c), Root: e.host(c.Root), Of: c, Src: sum, Dst: sum,
	})
	if f := e.takeBoth(ctx); f != nil || !e.here(c.Root) {
		return f
	}
	if e.hosts[c.Root] == c.Root {
		return nil
	}
	return e.handOver(ctx, c, p, sum)
}

// handOver brings what the leader has to the root on its host: a Scatter in
// which nobody else gets anything.
func (e *Engine) handOver(ctx context.Context, c *engine.Call, p *piece, sum engine.Mem) *engine.Failure {
	step := engine.Call{Verb: engine.Scatter, Uneven: true, Of: c, Dst: engine.Mem{Type: c.Src.Type}}
	if e.rank == c.Root {
		step.Dst = p.of(c.Dst)
	}
	if e.leads() {
		step.SrcParts = e.handed
		clear(e.handed)
		e.handed[e.index[c.Root]] = sum
	}
	e.inside.add(step)
	return e.take(ctx, &e.inside)
}

// broadcast brings the root's buffer to its host, from there to the other
// leaders, and to their hosts.
func (e *Engine) broadcast(ctx context.Context, call []engine.Call) *engine.Failure {
	c := &call[0]
	m := c.Dst
	if e.rank == c.Root {
		m = c.Src
	}
	if !e.here(c.Root) {
		e.arrive(c)
		if f := e.take(ctx, &e.inside); f != nil {
			return f
		}
	}
	for all := (pieces{calls: call}); all.more(); {
		p := all.next(e.opt.Segment)
		if f := e.broadcastPiece(ctx, c, p.of(m)); f != nil {
			return f
		}
	}
	return nil
}

func (e *Engine) broadcastPiece(ctx context.Context, c *engine.Call, m engine.Mem) *engine.Failure {
	if e.here(c.Root) {
		e.spread(c, &e.inside, e.index[c.Root], m)
		if f := e.take(ctx, &e.inside); f != nil {
			return f
		}
	}
	if e.leads() {
		e.spread(c, &e.across, e.host(c.Root), m)
		if f := e.take(ctx, &e.across); f != nil {
			return f
		}
	}
	if e.here(c.Root) {
		return nil
	}
	e.give(c, m)
	return e.take(ctx, &e.inside)
}
