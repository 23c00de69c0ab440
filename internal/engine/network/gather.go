package network

import "github.com/tutti-go/tutti/internal/engine"

// allGather copies every rank's source to all ranks.
func (e *Engine) allGather(c *engine.Call, alg Algorithm) error {
	dst := e.shares(c.Dst, c.DstParts)
	if alg == Bruck {
		blocks, err := e.bruckGather(c.Src)
		if err != nil {
			return err
		}
		for i := range e.size {
			engine.Copy(dst.at(e.mod(e.rank+i)), blocks.Slice(i*c.Src.N, c.Src.N))
		}
		return nil
	}
	if err := e.copyOwn(dst.at(e.rank), c.Src); err != nil {
		return err
	}
	return e.ringGather(&dst)
}

// gather copies every rank's source to the root.
func (e *Engine) gather(c *engine.Call, alg Algorithm) error {
	if alg == Tree {
		return e.treeGather(c)
	}
	if e.rank != c.Root {
		return e.send(c.Root, c.Src)
	}
	dst := e.shares(c.Dst, c.DstParts)
	if err := e.copyOwn(dst.at(e.rank), c.Src); err != nil {
		return err
	}
	return e.recvFromAll(&dst)
}

// scatter copies to every rank its share of the root's source. The root sends in rank order, starting after
// itself.
func (e *Engine) scatter(c *engine.Call, alg Algorithm) error {
	if alg == Tree {
		return e.treeScatter(c)
	}
	if e.rank != c.Root {
		return e.recv(c.Root, c.Dst)
	}
	src := e.shares(c.Src, c.SrcParts)
	for i := 1; i < e.size; i++ {
		to := e.mod(e.rank + i)
		if err := e.send(to, src.at(to)); err != nil {
			return err
		}
	}
	return e.copyOwn(c.Dst, src.at(e.rank))
}

// recvFromAll receives the parts of all other ranks, the next rank's first.
func (e *Engine) recvFromAll(dst *layout) error {
	for i := 1; i < e.size; i++ {
		from := e.mod(e.rank + i)
		if err := e.recv(from, dst.at(from)); err != nil {
			return err
		}
	}
	return nil
}
