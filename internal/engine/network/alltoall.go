package network

import "github.com/tutti-go/tutti/internal/engine"

// allToAll brings every rank's share of every source to it.
func (e *Engine) allToAll(c *engine.Call, way Algorithm) error {
	switch {
	case way == Bruck:
		return e.bruckToAll(c)
	case c.Uneven:
		return e.rotations(c)
	}
	return e.pairs(c)
}

// rotations is for uneven shares, which are never in place: in round k a rank
// sends to the kth rank after it and receives from the kth before it.
func (e *Engine) rotations(c *engine.Call) error {
	if err := e.takeOwn(c.DstParts[e.rank], c.SrcParts[e.rank]); err != nil {
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

// pairs swaps with one rank at a time, so that what comes can take the place of
// what went. Ranks that work in place and ranks that do not go the same way.
func (e *Engine) pairs(c *engine.Call) error {
	src, dst := e.shares(c.Src, nil), e.shares(c.Dst, nil)
	engine.Copy(dst.at(e.rank), src.at(e.rank))
	tmp := e.room(forSegment, min(dst.at(0).N, e.segmentElems(c.Dst.Type)), c.Dst.Type)
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

// partner is whom a rank meets in round k: itself, or a rank that meets it. In
// the rounds from 0 to ranks-1 it meets all.
func partner(rank, k, ranks int) int {
	if ranks&(ranks-1) == 0 {
		return rank ^ k
	}
	return (k - rank + ranks) % ranks
}
