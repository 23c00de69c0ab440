package network

import "github.com/tutti-go/tutti/internal/engine"

// bruckGather returns the blocks of all ranks in scratch memory: this rank's block
// first, then those of the ranks after it. In the round with distance d, a rank
// receives the blocks that rank+d has collected so far.
func (e *Engine) bruckGather(mine engine.Mem) (engine.Mem, error) {
	n := mine.N
	blocks := e.scratchMem(forWork, e.size*n, mine.Type)
	engine.Copy(blocks.Slice(0, n), mine)
	for d := 1; d < e.size; d *= 2 {
		k := min(d, e.size-d) * n
		if err := e.swap(e.mod(e.rank-d), blocks.Slice(0, k), e.mod(e.rank+d), blocks.Slice(d*n, k)); err != nil {
			return blocks, err
		}
	}
	return blocks, nil
}

// allReduceBruck collects all sources on every rank; each rank combines them in
// rank order.
func (e *Engine) allReduceBruck(r *reduction, dst, src engine.Mem) error {
	if r.scaled {
		scaled := e.scratchMem(forPart, src.N, src.Type)
		r.load(scaled, src)
		src = scaled
	}
	blocks, err := e.bruckGather(src)
	if err != nil {
		return err
	}
	r.inOrder(dst, dst, func(rank int) engine.Mem {
		return blocks.Slice(e.mod(rank-e.rank)*dst.N, dst.N)
	}, e.size)
	return nil
}

// bruckToAll moves blocks by the binary digits of their distance. work[i] holds the
// block that still has to move i ranks on, and later the block that has moved i
// ranks.
func (e *Engine) bruckToAll(c *engine.Call) error {
	n, t := c.Dst.N/e.size, c.Dst.Type
	work := e.scratchMem(forWork, e.size*n, t)
	for i := range e.size {
		engine.Copy(work.Slice(i*n, n), c.SrcPart(e.mod(e.rank+i), e.size))
	}
	pack := e.scratchMem(forPack, e.size*n, t)
	for d := 1; d < e.size; d *= 2 {
		k := 0
		for i := range e.size {
			if i&d != 0 {
				engine.Copy(pack.Slice(k*n, n), work.Slice(i*n, n))
				k++
			}
		}
		// Sent blocks are at the front of pack and received blocks behind them.
		// Both fit, because at most half of the blocks move in a round.
		out, in := pack.Slice(0, k*n), pack.Slice(k*n, k*n)
		if err := e.swap(e.mod(e.rank+d), out, e.mod(e.rank-d), in); err != nil {
			return err
		}
		k = 0
		for i := range e.size {
			if i&d != 0 {
				engine.Copy(work.Slice(i*n, n), in.Slice(k*n, n))
				k++
			}
		}
	}
	for i := range e.size {
		engine.Copy(c.DstPart(e.mod(e.rank-i), e.size), work.Slice(i*n, n))
	}
	return nil
}
