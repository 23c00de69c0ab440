package hier

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
)

// reduce combines all sources on the leader of the root's host, and passes the result to the
// root.
func (e *Engine) reduce(ctx context.Context, call []engine.Call) *engine.Failure {
	for all := (pieceIter{calls: call}); all.hasNext(); {
		p := all.next(e.opt.Segment)
		if f := e.reducePiece(ctx, p.c, &p); f != nil {
			return f
		}
	}
	return nil
}

// reducePiece reduces one piece on the leader of each host, then over the leaders onto the root's host, and
// passes the result to the root if the root is not the leader. All ranks call it; the first failure of a step
// ends it.
func (e *Engine) reducePiece(ctx context.Context, c *engine.Call, p *piece) *engine.Failure {
	src := p.slice(c.Src)
	var sum engine.Mem
	switch {
	case e.rank == c.Root && e.isLeader():
		sum = p.slice(c.Dst)
	case e.isLeader():
		sum = e.scratchFor(sumScratch, p.n, src.Type)
	}
	e.addLocalReduce(c, src, sum)
	e.leaderGroup.add(engine.Call{
		Verb: engine.Reduce, ReduceOp: leaderOp(c), Root: e.hostIndex(c.Root), Of: c, Src: sum, Dst: sum,
	})
	if f := e.runBoth(ctx); f != nil || !e.onThisHost(c.Root) {
		return f
	}
	if e.hosts[c.Root] == c.Root {
		return nil
	}
	return e.scatterToRoot(ctx, c, p, sum)
}

// scatterToRoot copies the leader's result to the root on the same host. It is a Scatter whose
// other shares are empty.
func (e *Engine) scatterToRoot(ctx context.Context, c *engine.Call, p *piece, sum engine.Mem) *engine.Failure {
	step := engine.Call{Verb: engine.Scatter, Uneven: true, Of: c, Dst: engine.Mem{Type: c.Src.Type}}
	if e.rank == c.Root {
		step.Dst = p.slice(c.Dst)
	}
	if e.isLeader() {
		step.SrcParts = e.rootShares
		clear(e.rootShares)
		e.rootShares[e.index[c.Root]] = sum
	}
	e.localGroup.add(step)
	return e.runSteps(ctx, &e.localGroup)
}

// broadcast copies the root's buffer to the ranks of its host, then to the other leaders, then
// to the ranks of their hosts, after these have notified their leader that they have arrived. call is a
// list of one call.
func (e *Engine) broadcast(ctx context.Context, call []engine.Call) *engine.Failure {
	c := &call[0]
	m := c.Dst
	if e.rank == c.Root {
		m = c.Src
	}
	if !e.onThisHost(c.Root) {
		e.addArrival(c)
		if f := e.runSteps(ctx, &e.localGroup); f != nil {
			return f
		}
	}
	for all := (pieceIter{calls: call}); all.hasNext(); {
		p := all.next(e.opt.Segment)
		if f := e.broadcastPiece(ctx, c, p.slice(m)); f != nil {
			return f
		}
	}
	return nil
}

// broadcastPiece broadcasts a piece on the root's host, then between the leaders, then on the other hosts.
// All ranks call it; the first failure of a step ends it.
func (e *Engine) broadcastPiece(ctx context.Context, c *engine.Call, m engine.Mem) *engine.Failure {
	if e.onThisHost(c.Root) {
		e.addBroadcast(c, &e.localGroup, e.index[c.Root], m)
		if f := e.runSteps(ctx, &e.localGroup); f != nil {
			return f
		}
	}
	if e.isLeader() {
		e.addBroadcast(c, &e.leaderGroup, e.hostIndex(c.Root), m)
		if f := e.runSteps(ctx, &e.leaderGroup); f != nil {
			return f
		}
	}
	if e.onThisHost(c.Root) {
		return nil
	}
	e.addLocalBroadcast(c, m)
	return e.runSteps(ctx, &e.localGroup)
}
