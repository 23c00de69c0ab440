package network

import "github.com/tutti-go/tutti/internal/engine"

// In the binomial tree the root has number 0, the ranks after it 1, 2 and so on
// (the relative rank). The children of number v are v+1, v+2, v+4 and so on, as
// long as the step is less than the lowest set bit of v. The numbers of a subtree
// are therefore adjacent.

// subtreeSpan returns the size of the subtree of v in a tree with 2^k ranks, k
// large enough for all ranks: a power of two.
func subtreeSpan(v, ranks int) int {
	if v != 0 {
		return v & -v
	}
	all := 1
	for all < ranks {
		all *= 2
	}
	return all
}

// subtreeSize returns the number of ranks in the subtree of v.
func subtreeSize(v, ranks int) int { return min(subtreeSpan(v, ranks), ranks-v) }

// relativeRank returns this rank's number in the tree of a root.
func (e *Engine) relativeRank(root int) int { return e.mod(e.rank - root) }

// treeBroadcast passes m down the tree, to the largest subtree first.
func (e *Engine) treeBroadcast(m engine.Mem, root int) error {
	me := e.relativeRank(root)
	span := subtreeSpan(me, e.size)
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

// treeReduce combines up the tree, from the smallest subtree first.
func (e *Engine) treeReduce(r *reduction, c *engine.Call) error {
	me := e.relativeRank(c.Root)
	span := subtreeSpan(me, e.size)
	acc := c.Dst
	switch {
	case me == 0:
		r.load(acc, c.Src)
	case subtreeSize(me, e.size) == 1 && !r.scaled:
		acc = c.Src // a leaf: the source is only read
	default:
		acc = e.scratchMem(forWork, c.Src.N, c.Src.Type)
		r.load(acc, c.Src)
	}
	loaded := r.loaded()
	for d := 1; d < span && me+d < e.size; d *= 2 {
		if err := e.swapReduce(&loaded, noRank, engine.Mem{}, e.mod(c.Root+me+d), acc, acc); err != nil {
			return err
		}
	}
	if me != 0 {
		return e.sendSegments(e.mod(c.Root+me-span), acc)
	}
	return nil
}

// treeGather collects blocks up the tree. Each rank has the blocks of its subtree
// in order.
func (e *Engine) treeGather(c *engine.Call) error {
	me, n := e.relativeRank(c.Root), c.Src.N
	span := subtreeSpan(me, e.size)
	blocks := c.Src
	if all := subtreeSize(me, e.size); all > 1 {
		blocks = e.scratchMem(forWork, all*n, c.Src.Type)
		engine.Copy(blocks.Slice(0, n), c.Src)
	}
	for d := 1; d < span && me+d < e.size; d *= 2 {
		if err := e.recv(e.mod(c.Root+me+d), blocks.Slice(d*n, subtreeSize(me+d, e.size)*n)); err != nil {
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

// treeScatter passes blocks down the tree: each rank receives the blocks of its subtree from its parent
// and sends each child the blocks of that child's subtree. The scratch memory belongs to the goroutine
// in Run until treeScatter returns. If a transfer fails or its context ends, the group fails.
func (e *Engine) treeScatter(c *engine.Call) error {
	me, n := e.relativeRank(c.Root), c.Dst.N
	span := subtreeSpan(me, e.size)
	all := subtreeSize(me, e.size)
	blocks := c.Dst
	if all > 1 {
		blocks = e.scratchMem(forWork, all*n, c.Dst.Type)
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
		if err := e.send(e.mod(c.Root+me+d), blocks.Slice(d*n, subtreeSize(me+d, e.size)*n)); err != nil {
			return err
		}
	}
	engine.Copy(c.Dst, blocks.Slice(0, n))
	return nil
}
