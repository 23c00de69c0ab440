package network

import "github.com/tutti-go/tutti/internal/engine"

// broadcast copies the root's buffer to all other ranks.
func (e *Engine) broadcast(c *engine.Call, alg Algorithm) error {
	m := c.Dst
	if e.rank == c.Root {
		m = c.Src
	}
	if alg == Tree {
		return e.treeBroadcast(m, c.Root)
	}
	return e.chain(m, c.Root)
}

// chain passes m along the ranks from the root on, in segments. In round j a rank
// receives segment j from the previous rank and sends segment j-1 to the next rank.
// An error from move ends the call; the group fails.
func (e *Engine) chain(m engine.Mem, root int) error {
	me := e.relativeRank(root)
	prev, next := e.mod(e.rank-1), e.mod(e.rank+1)
	if me == 0 {
		prev = noRank
	}
	if me == e.size-1 {
		next = noRank
	}
	if prev == noRank && next == noRank {
		return nil
	}
	n := e.segments(m)
	for j := range n + 1 {
		to, from := next, prev
		out, in := engine.Mem{}, engine.Mem{}
		if j == 0 {
			to = noRank
		} else {
			out = e.segment(m, j-1)
		}
		if j == n {
			from = noRank
		} else {
			in = e.segment(m, j)
		}
		if err := e.move(to, out, m.Bytes(), from, in, m.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
