package network

import "github.com/tutti-go/tutti/internal/engine"

// The binomial tree has the root as number 0, the ranks after it as 1, 2 and so
// on. Below number v are the numbers v+1, v+2, v+4 and so on, as far as these
// steps are smaller than v's own lowest bit, and what is below them. So a
// number and all below it lie in a row.

// reach is how many numbers there are from v on that are v or below it, were
// there enough of them: a power of two.
func reach(v, ranks int) int {
	if v != 0 {
		return v & -v
	}
	all := 1
	for all < ranks {
		all *= 2
	}
	return all
}

// below is how many numbers are v or below it.
func below(v, ranks int) int { return min(reach(v, ranks), ranks-v) }

// number is this rank's number in the tree of a root.
func (e *Engine) number(root int) int { return e.mod(e.rank - root) }

// treeBroadcast passes m down the tree, the longest branch first.
func (e *Engine) treeBroadcast(m engine.Mem, root int) error {
	me := e.number(root)
	span := reach(me, e.size)
	if me != 0 {
		if err := e.recv(e.mod(root+me-span), m); err != nil {
			return err
		}
	}
	for d := span / 2; d > 0; d /= 2 {
		if me+d >= e.size {
			continue
		}
		if err := e.send(e.mod(root+me+d), m); err != nil {
			return err
		}
	}
	return nil
}

// treeReduce combines up the tree, the shortest branch first.
func (e *Engine) treeReduce(r *reduction, c *engine.Call) error {
	me := e.number(c.Root)
	span := reach(me, e.size)
	acc := c.Dst
	switch {
	case me == 0:
		r.load(acc, c.Src)
	case below(me, e.size) == 1 && !r.scaled:
		acc = c.Src // a leaf: it is only read
	default:
		acc = e.room(forWork, c.Src.N, c.Src.Type)
		r.load(acc, c.Src)
	}
	loaded := r.loaded()
	for d := 1; d < span && me+d < e.size; d *= 2 {
		if err := e.swapReduce(&loaded, nobody, engine.Mem{}, e.mod(c.Root+me+d), acc, acc); err != nil {
			return err
		}
	}
	if me != 0 {
		return e.sendSegments(e.mod(c.Root+me-span), acc)
	}
	return nil
}

// treeGather collects blocks up the tree: each rank has those of all below it
// in a row.
func (e *Engine) treeGather(c *engine.Call) error {
	me, n := e.number(c.Root), c.Src.N
	span := reach(me, e.size)
	blocks := c.Src
	if all := below(me, e.size); all > 1 {
		blocks = e.room(forWork, all*n, c.Src.Type)
		engine.Copy(blocks.Slice(0, n), c.Src)
	}
	for d := 1; d < span && me+d < e.size; d *= 2 {
		if err := e.recv(e.mod(c.Root+me+d), blocks.Slice(d*n, below(me+d, e.size)*n)); err != nil {
			return err
		}
	}
	if me != 0 {
		return e.send(e.mod(c.Root+me-span), blocks)
	}
	for i := range e.size {
		engine.Copy(c.DstPart(e.mod(c.Root+i), e.size), blocks.Slice(i*n, n))
	}
	return nil
}

// treeScatter hands blocks down the tree.
func (e *Engine) treeScatter(c *engine.Call) error {
	me, n := e.number(c.Root), c.Dst.N
	span := reach(me, e.size)
	all := below(me, e.size)
	blocks := c.Dst
	if all > 1 {
		blocks = e.room(forWork, all*n, c.Dst.Type)
	}
	if me != 0 {
		if err := e.recv(e.mod(c.Root+me-span), blocks); err != nil {
			return err
		}
	} else {
		for i := range e.size {
			engine.Copy(blocks.Slice(i*n, n), c.SrcPart(e.mod(c.Root+i), e.size))
		}
	}
	for d := span / 2; d > 0; d /= 2 {
		if me+d >= e.size {
			continue
		}
		if err := e.send(e.mod(c.Root+me+d), blocks.Slice(d*n, below(me+d, e.size)*n)); err != nil {
			return err
		}
	}
	engine.Copy(c.Dst, blocks.Slice(0, n))
	return nil
}
