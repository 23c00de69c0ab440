package network

import "github.com/tutti-go/tutti/internal/engine"

// allReduce combines all sources into every destination. Ring and Direct first
// combine each rank's part on that rank, and then copy the parts to all ranks.
// Destinations are undefined after an error.
func (e *Engine) allReduce(c *engine.Call, alg Algorithm) error {
	r := e.reduction(c)
	if e.size == 1 {
		r.load(c.Dst, c.Src)
		return nil
	}
	dst, src := e.divided(c.Dst), e.divided(c.Src)
	switch alg {
	case Doubling:
		r.load(c.Dst, c.Src)
		r = r.loaded()
		return e.doubling(&r, c.Dst)
	case Halving:
		r.load(c.Dst, c.Src)
		r = r.loaded()
		return e.halvingDoubling(&r, &dst)
	case Bruck:
		return e.allReduceBruck(&r, c.Dst, c.Src)
	case Ring:
		if err := e.ringReduce(&r, &src, dst.at, dst.at(e.rank)); err != nil {
			return err
		}
	default:
		if err := e.directReduce(&r, &src, dst.at(e.rank)); err != nil {
			return err
		}
	}
	return e.ringGather(&dst)
}

// reduce combines all sources into the root's destination. Trees and the linear algorithm combine on the way;
// the others reduce each rank's part on that rank and send the parts to the root.
func (e *Engine) reduce(c *engine.Call, alg Algorithm) error {
	r := e.reduction(c)
	root := e.rank == c.Root
	if e.size == 1 {
		r.load(c.Dst, c.Src)
		return nil
	}
	switch alg {
	case Tree:
		return e.treeReduce(&r, c)
	case Linear:
		return e.linearReduce(&r, c)
	}
	src := e.divided(c.Src)
	part := src.at(e.rank)
	if root {
		dst := e.divided(c.Dst)
		part = dst.at(e.rank)
	} else {
		part = e.scratchMem(forPart, part.N, part.Type)
	}
	return e.reduceInParts(&r, c, alg, &src, part)
}

// reduceInParts reduces each rank's part on that rank and sends the parts to the
// root.
func (e *Engine) reduceInParts(r *reduction, c *engine.Call, alg Algorithm, src *layout, part engine.Mem) error {
	var err error
	if alg == Ring {
		hold := e.scratchMem(forWork, src.longest(), part.Type)
		err = e.ringReduce(r, src, func(p int) engine.Mem { return hold.Slice(0, src.at(p).N) }, part)
	} else {
		err = e.directReduce(r, src, part)
	}
	if err != nil {
		return err
	}
	if e.rank != c.Root {
		return e.send(c.Root, part)
	}
	dst := e.divided(c.Dst)
	return e.recvFromAll(&dst)
}

// reduceScatter combines all sources and leaves each rank's part in its
// destination.
func (e *Engine) reduceScatter(c *engine.Call, alg Algorithm) error {
	r := e.reduction(c)
	src := e.shares(c.Src, c.SrcParts)
	if own := src.at(e.rank); own.N != c.Dst.N {
		return e.wrongCount(e.rank, c.Dst.Bytes(), own.Bytes())
	}
	if e.size == 1 {
		r.load(c.Dst, src.at(0))
		return nil
	}
	var err error
	switch alg {
	case Halving:
		err = e.halvingScatter(&r, &src, c.Dst)
	case Ring:
		hold := e.scratchMem(forWork, c.Dst.N, c.Dst.Type)
		err = e.ringReduce(&r, &src, func(int) engine.Mem { return hold }, c.Dst)
	default:
		err = e.directReduce(&r, &src, c.Dst)
	}
	if err != nil {
		return err
	}
	return nil
}
