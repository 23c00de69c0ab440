package hier

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// scan carries out a Scan or ExScan. The ranks of every host must be consecutive.
func (e *Engine) scan(ctx context.Context, call []engine.Call) *engine.Failure {
	for all := (pieceIter{calls: call}); all.hasNext(); {
		p := all.next(e.opt.Segment)
		if f := e.scanPiece(ctx, p.c, &p); f != nil {
			return f
		}
	}
	return nil
}

// scanPiece combines the sources of each host on its leader. The leaders scan these sums, so that
// each knows the combination of the hosts before. Then the ranks of a host scan their sources and
// put that combination before their results. Only hosts behind the first have one.
func (e *Engine) scanPiece(ctx context.Context, c *engine.Call, p *piece) *engine.Failure {
	src := p.slice(c.Src)
	host := e.hostIndex(e.rank)
	var sum, before engine.Mem
	if e.isLeader() {
		sum = e.scratchFor(sumScratch, p.n, src.Type)
	}
	if host > 0 {
		before = e.scratchFor(beforeScratch, p.n, src.Type)
	}
	e.addLocalReduce(c, src, sum)
	e.leaderGroup.add(engine.Call{Verb: engine.ExScan, ReduceOp: leaderOp(c), Of: c, Src: sum, Dst: before})
	if f := e.runBoth(ctx); f != nil {
		return f
	}
	step := engine.Call{Verb: c.Verb, ReduceOp: c.ReduceOp, Scale: c.Scale, Of: c, Src: src}
	if c.Verb.Info().Dest.Ranks.Has(e.rank, c.Root) {
		step.Dst = p.slice(c.Dst)
	}
	e.localGroup.add(step)
	if host > 0 {
		e.addLocalBroadcast(c, before)
	}
	if f := e.runSteps(ctx, &e.localGroup); f != nil {
		return f
	}
	switch {
	case host == 0:
	case c.Verb == engine.ExScan && e.isLeader():
		move(step.Dst, before)
	default:
		kernel.Reduce(step.Dst.Ptr, before.Ptr, step.Dst.Ptr, p.n, src.Type, leaderOp(c).Info().Kernel)
	}
	return nil
}
