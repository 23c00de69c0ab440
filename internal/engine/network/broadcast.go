package network

import "github.com/tutti-go/tutti/internal/engine"

// broadcast brings the root's buffer to all others.
func (e *Engine) broadcast(c *engine.Call, way Algorithm) error {
	m := c.Dst
	if e.rank == c.Root {
		m = c.Src
	}
	if way == Tree {
		return e.treeBroadcast(m, c.Root)
	}
	return e.chain(m, c.Root)
}

// chain passes m along the line of ranks that begins at the root, in segments:
// while one is passed on the next one arrives.
func (e *Engine) chain(m engine.Mem, root int) error {
	me := e.number(root)
	prev, next := e.mod(e.rank-1), e.mod(e.rank+1)
	if me == 0 {
		prev = nobody
	}
	if me == e.size-1 {
		next = nobody
	}
	if prev == nobody && next == nobody {
		return nil
	}
	n := e.segments(m)
	for j := range n + 1 {
		to, from := next, prev
		out, in := engine.Mem{}, engine.Mem{}
		if j == 0 {
			to = nobody
		} else {
			out = e.segment(m, j-1)
		}
		if j == n {
			from = nobody
		} else {
			in = e.segment(m, j)
		}
		if err := e.move(to, out, m.Bytes(), from, in, m.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
