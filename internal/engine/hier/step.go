package hier

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// The methods named add... append a step to an inner group. Each step names its call in
// engine.Call.Of, so that ranks of the inner group that make different calls detect it.

// addArrival notifies the leader that the ranks of its host have arrived. It is the first step
// of calls that begin without data.
func (e *Engine) addArrival(c *engine.Call) {
	nothing := engine.Mem{Type: kernel.Uint8}
	e.localGroup.add(engine.Call{Verb: engine.Reduce, ReduceOp: engine.Max, Of: c, Src: nothing, Dst: nothing})
}

// addBarrier adds a barrier of a subgroup.
func (e *Engine) addBarrier(c *engine.Call, p *subgroup) {
	p.add(engine.Call{Verb: engine.Barrier, Of: c})
}

// addLocalBroadcast copies the leader's elements to all ranks of its host.
func (e *Engine) addLocalBroadcast(c *engine.Call, m engine.Mem) {
	e.addBroadcast(c, &e.localGroup, 0, m)
}

// addBroadcast copies the elements of rank root of a subgroup to all its ranks.
func (e *Engine) addBroadcast(c *engine.Call, p *subgroup, root int, m engine.Mem) {
	p.add(engine.Call{Verb: engine.Broadcast, Root: root, Of: c, Src: m, Dst: m})
}

// addLocalReduce combines the sources of this host in the leader's dst.
func (e *Engine) addLocalReduce(c *engine.Call, src, dst engine.Mem) {
	red, scale := c.ReduceOp, c.Scale
	if c.Scales() { // by the size of the whole group, not of this host's
		red, scale = engine.PreMul, c.Factor(e.Size())
	}
	e.localGroup.add(engine.Call{Verb: engine.Reduce, ReduceOp: red, Scale: scale, Of: c, Src: src, Dst: dst})
}

// leaderOp returns the operator by which the leaders combine the results of addLocalReduce,
// which are scaled already.
func leaderOp(c *engine.Call) engine.ReduceOp { return c.ReduceOp.Info().Inner }

// runBoth runs the steps of the local group, and then those of the leaders.
func (e *Engine) runBoth(ctx context.Context) *engine.Failure {
	if f := e.runSteps(ctx, &e.localGroup); f != nil || !e.isLeader() {
		return f
	}
	return e.runSteps(ctx, &e.leaderGroup)
}

// barrier returns when all ranks have arrived.
func (e *Engine) barrier(ctx context.Context, c *engine.Call) *engine.Failure {
	e.addArrival(c)
	e.addBarrier(c, &e.leaderGroup)
	if f := e.runBoth(ctx); f != nil {
		return f
	}
	e.addBarrier(c, &e.localGroup)
	return e.runSteps(ctx, &e.localGroup)
}

// runFlat runs calls on the engine for all ranks. A barrier of the leaders precedes it:
// without the barrier, hosts that disagree about the call could wait for each other in
// different groups.
func (e *Engine) runFlat(ctx context.Context, calls []engine.Call) *engine.Failure {
	e.addArrival(&calls[0])
	e.addBarrier(&calls[0], &e.leaderGroup)
	if f := e.runBoth(ctx); f != nil {
		return f
	}
	if err := e.opt.All.Run(ctx, e.seq, calls); err != nil {
		return e.translateAll(failureOf(err))
	}
	return nil
}
