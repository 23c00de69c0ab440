package hier

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// The steps that calls are made of. All say of which call they are one, so that the
// ranks that take part find out if others do something else.

// arrive lets the leader know that the ranks of its host have come. It is the
// first step of calls that have no data to begin with.
func (e *Engine) arrive(c *engine.Call) {
	nothing := engine.Mem{Type: kernel.Uint8}
	e.inside.add(engine.Call{Verb: engine.Reduce, Red: engine.Max, Of: c, Src: nothing, Dst: nothing})
}

// meet is a barrier.
func (e *Engine) meet(c *engine.Call, p *part) {
	p.add(engine.Call{Verb: engine.Barrier, Of: c})
}

// give brings what the leader has to all ranks of its host.
func (e *Engine) give(c *engine.Call, m engine.Mem) { e.spread(c, &e.inside, 0, m) }

// spread brings what one has to all of a part.
func (e *Engine) spread(c *engine.Call, p *part, root int, m engine.Mem) {
	p.add(engine.Call{Verb: engine.Broadcast, Root: root, Of: c, Src: m, Dst: m})
}

// collect combines the sources of a host in the leader's dst.
func (e *Engine) collect(c *engine.Call, src, dst engine.Mem) {
	red, scale := c.Red, c.Scale
	if c.Scales() { // by the size of the whole group, not of this host's
		red, scale = engine.PreMul, c.Factor(e.Size())
	}
	e.inside.add(engine.Call{Verb: engine.Reduce, Red: red, Scale: scale, Of: c, Src: src, Dst: dst})
}

// between is how the leaders combine what collect has left.
func between(c *engine.Call) engine.Red { return c.Red.Info().Inner }

// takeBoth lets this host, and then the leaders take their steps.
func (e *Engine) takeBoth(ctx context.Context) *engine.Failure {
	if f := e.take(ctx, &e.inside); f != nil || !e.leads() {
		return f
	}
	return e.take(ctx, &e.across)
}

// barrier returns when all ranks have come.
func (e *Engine) barrier(ctx context.Context, c *engine.Call) *engine.Failure {
	e.arrive(c)
	e.meet(c, &e.across)
	if f := e.takeBoth(ctx); f != nil {
		return f
	}
	e.meet(c, &e.inside)
	return e.take(ctx, &e.inside)
}

// whole carries a call out among all ranks. The leaders meet first: without
// that, hosts that do not agree about the call could wait for each other in
// different groups.
func (e *Engine) whole(ctx context.Context, calls []engine.Call) *engine.Failure {
	e.arrive(&calls[0])
	e.meet(&calls[0], &e.across)
	if f := e.takeBoth(ctx); f != nil {
		return f
	}
	if err := e.opt.All.Run(ctx, e.seq, calls); err != nil {
		return e.translateAll(failureOf(err))
	}
	return nil
}
