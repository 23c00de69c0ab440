package hier

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// allGather collects the blocks of each host on its leader, exchanges them between the
// leaders, and broadcasts all blocks on each host. The leader works directly in its
// destination if the ranks of each host are consecutive.
func (e *Engine) allGather(ctx context.Context, c *engine.Call) *engine.Failure {
	step := engine.Call{Verb: engine.Gather, Of: c, Src: c.Src}
	n := c.Src.N
	var work engine.Mem
	if e.isLeader() {
		if work = c.Dst; !e.inOrder {
			work = e.scratchFor(blockScratch, n*e.Size(), c.Src.Type)
		}
		e.setHostShares(work, n)
		mine := e.hostShares[e.hostIndex(e.rank)]
		step.Dst = mine
		e.leaderGroup.add(e.withShares(engine.Call{
			Verb: engine.AllGather, Of: c, Src: mine, Dst: work, DstParts: e.hostShares,
		}))
	}
	e.localGroup.add(step)
	if f := e.runBoth(ctx); f != nil {
		return f
	}
	if e.isLeader() && !e.inOrder {
		for i, r := range e.order {
			move(block(c.Dst, r, n), block(work, i, n))
		}
	}
	e.addLocalBroadcast(c, c.Dst)
	return e.runSteps(ctx, &e.localGroup)
}

// reduceScatter combines the sources of a host on its leader, combines each host's blocks on
// that host's leader, and scatters them to the host's ranks.
func (e *Engine) reduceScatter(ctx context.Context, c *engine.Call) *engine.Failure {
	step := engine.Call{Verb: engine.Scatter, Of: c, Dst: c.Dst}
	n := c.Dst.N
	var sum engine.Mem
	if e.isLeader() {
		sum = e.scratchFor(sumScratch, c.Src.N, c.Src.Type)
	}
	e.addLocalReduce(c, c.Src, sum)
	if f := e.runSteps(ctx, &e.localGroup); f != nil {
		return f
	}
	if e.isLeader() {
		work := sum
		if !e.inOrder {
			work = e.scratchFor(blockScratch, sum.N, sum.Type)
			for i, r := range e.order {
				move(block(work, i, n), block(sum, r, n))
			}
		}
		e.setHostShares(work, n)
		mine := e.hostShares[e.hostIndex(e.rank)]
		e.leaderGroup.add(e.withShares(engine.Call{
			Verb: engine.ReduceScatter, ReduceOp: leaderOp(c), Of: c, Src: work, SrcParts: e.hostShares, Dst: mine,
		}))
		if f := e.runSteps(ctx, &e.leaderGroup); f != nil {
			return f
		}
		step.Src = mine
	}
	e.localGroup.add(step)
	return e.runSteps(ctx, &e.localGroup)
}

// setHostShares sets hostShares to the hosts' shares of m, which holds blocks of n elements in
// the order of layout.order.
func (e *Engine) setHostShares(m engine.Mem, n int) {
	for h := range e.hostShares {
		e.hostShares[h] = m.Slice(min(e.offsets[h]*n, m.N), e.rankCount(h)*n)
	}
}

// withShares returns the leaders' call in its even form if all hosts have the same number of
// ranks, and otherwise in its uneven form. The caller sets the buffers of both forms.
func (e *Engine) withShares(c engine.Call) engine.Call {
	c.Uneven = !e.even
	if c.Uneven {
		if c.Verb == engine.AllGather {
			c.Dst = engine.Mem{}
		} else {
			c.Src = engine.Mem{}
		}
		return c
	}
	c.DstParts, c.SrcParts = nil, nil
	return c
}

// block returns block i of a buffer of blocks of n elements.
func block(m engine.Mem, i, n int) engine.Mem { return m.Slice(i*n, n) }

func move(dst, src engine.Mem) { kernel.Copy(dst.Ptr, src.Ptr, dst.Bytes()) }
