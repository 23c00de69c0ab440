package network

import "github.com/tutti-go/tutti/internal/engine"

// allReduce leaves the combination of all sources in every destination.
func (e *Engine) allReduce(c *engine.Call, way Algorithm) error {
	r := e.reduction(c)
	if e.size == 1 {
		r.load(c.Dst, c.Src)
		return nil
	}
	dst, src := e.divided(c.Dst), e.divided(c.Src)
	switch way {
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

// reduce leaves the combination of all sources in the root's destination.
func (e *Engine) reduce(c *engine.Call, way Algorithm) error {
	r := e.reduction(c)
	root := e.rank == c.Root
	if e.size == 1 {
		r.load(c.Dst, c.Src)
		return nil
	}
	switch way {
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
		part = e.room(forPart, part.N, part.Type)
	}
	return e.reduceInParts(&r, c, way, &src, part)
}

// reduceInParts reduces each rank's part at that rank, and brings the parts to
// the root.
func (e *Engine) reduceInParts(r *reduction, c *engine.Call, way Algorithm, src *layout, part engine.Mem) error {
	var err error
	if way == Ring {
		hold := e.room(forWork, src.longest(), part.Type)
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

// reduceScatter leaves each rank's part of the combination in its destination.
func (e *Engine) reduceScatter(c *engine.Call, way Algorithm) error {
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
	switch way {
	case Halving:
		err = e.halvingScatter(&r, &src, c.Dst)
	case Ring:
		hold := e.room(forWork, c.Dst.N, c.Dst.Type)
		err = e.ringReduce(&r, &src, func(int) engine.Mem { return hold }, c.Dst)
	default:
		err = e.directReduce(&r, &src, c.Dst)
	}
	if err != nil {
		return err
	}
	return nil
}
