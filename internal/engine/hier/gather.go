package hier

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// allGather brings the blocks of a host to its leader, the hosts' to all
// leaders, and everything to all ranks. The leader works in its destination, if
// blocks lie there host by host.
func (e *Engine) allGather(ctx context.Context, c *engine.Call) *engine.Failure {
	step := engine.Call{Verb: engine.Gather, Of: c, Src: c.Src}
	n := c.Src.N
	var work engine.Mem
	if e.leads() {
		if work = c.Dst; !e.inOrder {
			work = e.room(forBlocks, n*e.Size(), c.Src.Type)
		}
		e.divide(work, n)
		mine := e.shares[e.host(e.rank)]
		step.Dst = mine
		e.across.add(e.divided(engine.Call{
			Verb: engine.AllGather, Of: c, Src: mine, Dst: work, DstParts: e.shares,
		}))
	}
	e.inside.add(step)
	if f := e.takeBoth(ctx); f != nil {
		return f
	}
	if e.leads() && !e.inOrder {
		for i, r := range e.order {
			move(block(c.Dst, r, n), block(work, i, n))
		}
	}
	e.give(c, c.Dst)
	return e.take(ctx, &e.inside)
}

// reduceScatter combines the sources of a host in its leader, each host's blocks
// in that host's leader, and brings them to the ranks.
func (e *Engine) reduceScatter(ctx context.Context, c *engine.Call) *engine.Failure {
	step := engine.Call{Verb: engine.Scatter, Of: c, Dst: c.Dst}
	n := c.Dst.N
	var sum engine.Mem
	if e.leads() {
		sum = e.room(forSum, c.Src.N, c.Src.Type)
	}
	e.collect(c, c.Src, sum)
	if f := e.take(ctx, &e.inside); f != nil {
		return f
	}
	if e.leads() {
		work := sum
		if !e.inOrder {
			work = e.room(forBlocks, sum.N, sum.Type)
			for i, r := range e.order {
				move(block(work, i, n), block(sum, r, n))
			}
		}
		e.divide(work, n)
		mine := e.shares[e.host(e.rank)]
		e.across.add(e.divided(engine.Call{
			Verb: engine.ReduceScatter, Red: between(c), Of: c, Src: work, SrcParts: e.shares, Dst: mine,
		}))
		if f := e.take(ctx, &e.across); f != nil {
			return f
		}
		step.Src = mine
	}
	e.inside.add(step)
	return e.take(ctx, &e.inside)
}

// divide finds the hosts' shares of blocks that lie host by host.
func (e *Engine) divide(m engine.Mem, n int) {
	for h := range e.shares {
		e.shares[h] = m.Slice(min(e.starts[h]*n, m.N), e.ranks(h)*n)
	}
}

// divided is the leaders' call, given with both its forms: with the even one, if
// all hosts have the same share, and otherwise with the uneven one.
func (e *Engine) divided(c engine.Call) engine.Call {
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

// block is the ith of blocks of n elements.
func block(m engine.Mem, i, n int) engine.Mem { return m.Slice(i*n, n) }

func move(dst, src engine.Mem) { kernel.Copy(dst.Ptr, src.Ptr, dst.Bytes()) }
