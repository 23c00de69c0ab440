package network

import "github.com/tutti-go/tutti/internal/engine"

// allToAll sends each rank's share of every source to that rank.
func (e *Engine) allToAll(c *engine.Call, alg Algorithm) error {
	switch {
	case alg == Bruck:
		return e.bruckToAll(c)
	case c.Uneven:
		return e.rotate(c)
	}
	return e.pairwise(c)
}

// rotate exchanges uneven shares, which are never in place. In round k a rank sends
// to rank+k and receives from rank-k.
func (e *Engine) rotate(c *engine.Call) error {
	if err := e.copyOwn(c.DstParts[e.rank], c.SrcParts[e.rank]); err != nil {
		return err
	}
	for k := 1; k < e.size; k++ {
		to, from := e.mod(e.rank+k), e.mod(e.rank-k)
		if err := e.swap(to, c.SrcParts[to], from, c.DstParts[from]); err != nil {
			return err
		}
	}
	return nil
}

// pairwise exchanges with one rank at a time, so that received data can overwrite
// sent data in an AllToAll in place. Ranks that work in place and ranks that do not
// use the same schedule.
func (e *Engine) pairwise(c *engine.Call) error {
	src, dst := e.shares(c.Src, nil), e.shares(c.Dst, nil)
	engine.Copy(dst.at(e.rank), src.at(e.rank))
	tmp := e.scratchMem(forSegment, min(dst.at(0).N, e.segmentElems(c.Dst.Type)), c.Dst.Type)
	for k := range e.size {
		peer := partner(e.rank, k, e.size)
		if peer == e.rank {
			continue
		}
		from, to := src.at(peer), dst.at(peer)
		for j := range e.segments(to) {
			out, in := e.segment(from, j), e.segment(to, j)
			got := in
			if out.Ptr == in.Ptr {
				got = tmp.Slice(0, in.N)
			}
			if err := e.move(peer, out, from.Bytes(), peer, got, to.Bytes()); err != nil {
				return err
			}
			engine.Copy(in, got)
		}
	}
	return nil
}

// partner returns the rank with which a rank exchanges in round k, possibly itself.
// The relation is symmetric, and the rounds from 0 to ranks-1 cover all ranks.
func partner(rank, k, ranks int) int {
	if ranks&(ranks-1) == 0 {
		return rank ^ k
	}
	return (k - rank + ranks) % ranks
}
