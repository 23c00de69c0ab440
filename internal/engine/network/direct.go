package network

import "github.com/tutti-go/tutti/internal/engine"

// directReduce sends each part of src directly to its rank, which combines the
// parts in rank order into dst. In round k a rank sends to rank+k and receives from
// rank-k.
//
// All ranks divide their parts into the same segments. For each segment, a rank
// first receives the other ranks' data into scratch memory, one slot per rank, and
// then combines the slots. An error from move ends the call; the group fails.
func (e *Engine) directReduce(r *reduction, src *layout, dst engine.Mem) error {
	t := dst.Type
	// Elements of a segment: the slots of all ranks together must fit into memory
	// that is kept for the next call.
	per := min(e.segmentElems(t), max(engine.KeepBytes/e.size/t.Size(), lineBytes))
	frames := func(n int) int { return max(1, (n+per-1)/per) }
	mine := frames(dst.N)
	slots := e.scratchMem(forWork, e.size*min(per, dst.N), t)
	var pack engine.Mem
	if r.scaled {
		pack = e.scratchMem(forPack, min(per, src.longest()), t)
	}
	for j := range frames(src.longest()) {
		result := piece(dst, j, per)
		slot := func(rank int) engine.Mem { return slots.Slice(rank*result.N, result.N) }
		for k := 1; k < e.size; k++ {
			to, from := e.mod(e.rank+k), e.mod(e.rank-k)
			part := src.at(to)
			out, in := piece(part, j, per), slot(from)
			if j >= frames(part.N) {
				to = noRank
			} else if r.scaled {
				scaled := pack.Slice(0, out.N)
				r.load(scaled, out)
				out = scaled
			}
			if j >= mine {
				from = noRank
			}
			if err := e.move(to, out, part.Bytes(), from, in, dst.Bytes()); err != nil {
				return err
			}
		}
		own := piece(src.at(e.rank), j, per)
		if r.scaled {
			r.load(slot(e.rank), own)
			own = slot(e.rank)
		}
		r.inOrder(result, slot(0), func(rank int) engine.Mem {
			if rank == e.rank {
				return own
			}
			return slot(rank)
		}, e.size)
	}
	return nil
}

// linearReduce makes the root receive and combine all sources in rank order. The other ranks send theirs and
// return.
func (e *Engine) linearReduce(r *reduction, c *engine.Call) error {
	if e.rank != c.Root {
		m := c.Src
		if r.scaled {
			m = e.scratchMem(forWork, m.N, m.Type)
			r.load(m, c.Src)
		}
		return e.sendSegments(c.Root, m)
	}
	own := c.Src
	if r.scaled || c.Dst.Ptr == c.Src.Ptr {
		own = e.scratchMem(forWork, c.Src.N, c.Src.Type)
		r.load(own, c.Src)
	}
	loaded := r.loaded()
	for rank := range e.size {
		var err error
		switch {
		case rank == e.rank && rank == 0:
			engine.Copy(c.Dst, own)
		case rank == e.rank:
			loaded.add(c.Dst, c.Dst, own)
		case rank == 0:
			err = e.recvSegments(rank, c.Dst)
		default:
			err = e.swapReduce(&loaded, noRank, engine.Mem{}, rank, c.Dst, c.Dst)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
