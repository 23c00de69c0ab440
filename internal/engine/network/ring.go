package network

import "github.com/tutti-go/tutti/internal/engine"

// ringReduce sends each part once around the ring. Every rank combines it with its
// own source, so the part is complete when it reaches its rank. This rank's own
// part ends in last. Parts in transit go through hold, which may return the same
// memory for all.
func (e *Engine) ringReduce(r *reduction, src *layout, hold func(part int) engine.Mem, last engine.Mem) error {
	next, prev := e.mod(e.rank+1), e.mod(e.rank-1)
	out := src.at(prev)
	if r.scaled {
		out = hold(prev)
		r.load(out, src.at(prev))
	}
	for s := 2; s <= e.size; s++ {
		part := e.mod(e.rank - s)
		dst := last
		if s < e.size {
			dst = hold(part)
		}
		if err := e.swapReduce(r, next, out, prev, dst, src.at(part)); err != nil {
			return err
		}
		out = dst
	}
	return nil
}

// ringGather copies every rank's part to all other ranks, around the ring.
func (e *Engine) ringGather(dst *layout) error {
	next, prev := e.mod(e.rank+1), e.mod(e.rank-1)
	for s := range e.size - 1 {
		if err := e.swap(next, dst.at(e.mod(e.rank-s)), prev, dst.at(e.mod(e.rank-s-1))); err != nil {
			return err
		}
	}
	return nil
}
