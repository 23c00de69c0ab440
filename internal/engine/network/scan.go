package network

import "github.com/tutti-go/tutti/internal/engine"

// scan combines the sources of the ranks before each rank, and in a Scan that rank's own, into the
// rank's destination. Every algorithm combines in rank order. Doubling groups neighboring ranks; the
// others combine from rank 0 on.
func (e *Engine) scan(c *engine.Call, alg Algorithm) error {
	r := e.reduction(c)
	if e.size == 1 {
		if c.Verb == engine.Scan {
			r.load(c.Dst, c.Src)
		}
		return nil
	}
	switch {
	case alg == Bruck:
		return e.scanBruck(&r, c)
	case alg == Chain:
		return e.scanChain(&r, c)
	case c.Verb == engine.Scan:
		r.load(c.Dst, c.Src)
		r = r.loaded()
		return e.scanDoubling(&r, c.Dst)
	default:
		return e.exScanDoubling(&r, c)
	}
}

// distance returns the ranks at distance d to which this rank sends and from which it receives.
func (e *Engine) distance(d int) (to, from int) {
	to, from = e.rank+d, e.rank-d
	if to >= e.size {
		to = noRank
	}
	if from < 0 {
		from = noRank
	}
	return to, from
}

// scanDoubling turns m, the source, into the combination of all sources up to this rank. After the
// round with distance d it holds those of the last 2d ranks.
func (e *Engine) scanDoubling(r *reduction, m engine.Mem) error {
	for d := 1; d < e.size; d *= 2 {
		to, from := e.distance(d)
		if err := e.swapReduce(r, to, m, from, m, m); err != nil {
			return err
		}
	}
	return nil
}

// exScanDoubling is scanDoubling in scratch memory. What it receives also goes to the destination, which so
// has the same ranks but this one.
func (e *Engine) exScanDoubling(r *reduction, c *engine.Call) error {
	sum := e.scratchMem(forWork, c.Src.N, c.Src.Type)
	r.load(sum, c.Src)
	loaded := r.loaded()
	tmp := e.scratchMem(forSegment, min(sum.N, e.segmentElems(sum.Type)), sum.Type)
	for d := 1; d < e.size; d *= 2 {
		to, from := e.distance(d)
		for j := range e.segments(sum) {
			own := e.segment(sum, j)
			got := tmp.Slice(0, own.N)
			if err := e.move(to, own, sum.Bytes(), from, got, sum.Bytes()); err != nil {
				return err
			}
			if from == noRank {
				continue
			}
			if dst := e.segment(c.Dst, j); d == 1 {
				engine.Copy(dst, got)
			} else {
				loaded.add(dst, got, dst)
			}
			if e.rank+2*d < e.size { // the sum is sent again
				loaded.add(own, got, own)
			}
		}
	}
	return nil
}

// scanBruck collects all sources on every rank. Each rank combines the sources of the ranks before it.
func (e *Engine) scanBruck(r *reduction, c *engine.Call) error {
	src := c.Src
	if r.scaled {
		src = e.scratchMem(forPart, c.Src.N, c.Src.Type)
		r.load(src, c.Src)
	}
	blocks, err := e.bruckGather(src)
	if err != nil {
		return err
	}
	block := func(rank int) engine.Mem { return blocks.Slice(e.mod(rank-e.rank)*src.N, src.N) }
	switch n := c.Verb.Info().Prefix.Sources(e.rank, e.size); n {
	case 0:
	case 1:
		engine.Copy(c.Dst, block(0))
	default:
		r.inOrder(c.Dst, c.Dst, block, n)
	}
	return nil
}

// scanChain passes the combination of the sources along the ranks, in segments. In round j a rank receives
// segment j from the previous rank and sends segment j-1 to the next rank. An error from move ends the call;
// the group fails.
func (e *Engine) scanChain(r *reduction, c *engine.Call) error {
	next, prev := e.distance(1)
	per := min(c.Src.N, e.segmentElems(c.Src.Type))
	received := e.scratchMem(forSegment, per, c.Src.Type)
	var sums engine.Mem // of an ExScan: the segment that is sent, and the next one
	if c.Verb == engine.ExScan {
		sums = e.scratchMem(forWork, 2*per, c.Src.Type)
	}
	sum := func(j int) engine.Mem {
		if c.Verb == engine.Scan {
			return e.segment(c.Dst, j)
		}
		return sums.Slice(j%2*per, e.segment(c.Src, j).N)
	}
	segments, bytes := e.segments(c.Src), c.Src.Bytes()
	for j := range segments + 1 {
		to, from := next, prev
		var out, in engine.Mem
		if j == 0 {
			to = noRank
		} else {
			out = sum(j - 1)
		}
		if j == segments {
			from = noRank
		} else {
			in = received.Slice(0, e.segment(c.Src, j).N)
		}
		if err := e.move(to, out, bytes, from, in, bytes); err != nil {
			return err
		}
		if j == segments {
			break
		}
		own := e.segment(c.Src, j)
		switch {
		case prev == noRank:
			r.load(sum(j), own)
		case c.Verb == engine.Scan || next != noRank:
			r.add(sum(j), in, own)
		}
		if c.Verb == engine.ExScan && prev != noRank {
			engine.Copy(e.segment(c.Dst, j), in)
		}
	}
	return nil
}
