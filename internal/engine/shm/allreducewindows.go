package shm

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/wait"
)

// streamParts is a large AllReduce between processes: each rank puts the
// others' shares of a window into its ring, reduces its own share of everybody's
// window, puts the result into a second ring, and takes the other results from
// theirs. Three windows are under way at once: one being filled, one reduced,
// one fetched.
func (e *Engine) allReduceWindows(c *engine.Call, f *windowCall) error {
	n := len(e.g.boards)
	// Shares end at cache lines, so that windows begin at them.
	round := 64 / f.t.Size()
	part := ((c.Src.N+n-1)/n + round - 1) / round * round
	share := func(m engine.Mem, r int) engine.Mem {
		lo := min(r*part, m.N)
		return m.Slice(lo, min(part, m.N-lo))
	}
	total := (part + f.perWindow - 1) / f.perWindow
	for w := range total + 2 {
		if e.g.lot.Stopped() {
			return wait.ErrStopped
		}
		if w < total {
			if err := e.fillShares(c, f, w, share); err != nil {
				return err
			}
		}
		if v := w - 1; v >= 0 && v < total {
			if err := e.reduceShare(c, f, v, share); err != nil {
				return err
			}
		}
		if v := w - 2; v >= 0 {
			if err := e.fetchShares(c, f, v, share); err != nil {
				return err
			}
		}
	}
	e.storeAllTaken()
	return nil
}

type shareFunc func(m engine.Mem, r int) engine.Mem

func (e *Engine) fillShares(c *engine.Call, f *windowCall, w int, share shareFunc) error {
	// A rank has done with the others' windows when it has reduced them.
	if w >= numWindows {
		if err := e.waitProgress(f.counterBase | uint64(w-numWindows+1)); err != nil {
			return err
		}
	}
	for r := range e.g.boards {
		if r != e.rank {
			e.copyIn(c, e.g.rings[e.rank].at(w, r, f.windowBytes), window(share(c.Src, r), w, f.perWindow))
		}
	}
	e.storeWord(e.board.staged(), f.counterBase|uint64(w+1))
	return nil
}

// hearProgress waits until all have reduced so many windows.
func (e *Engine) waitProgress(least uint64) error {
	for r, b := range e.g.boards {
		if r == e.rank {
			continue
		}
		if err := e.waitWord(b.progress(), r, least); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) reduceShare(c *engine.Call, f *windowCall, w int, share shareFunc) error {
	mine := window(share(c.Src, e.rank), w, f.perWindow)
	for r, b := range e.g.boards {
		if r == e.rank {
			e.from[r], e.scale[r] = mine.Ptr, e.factor(c)
			continue
		}
		if w == 0 {
			if _, err := e.awaitSlot(r); err != nil {
				return err
			}
		}
		if err := e.waitWord(b.staged(), r, f.counterBase|uint64(w+1)); err != nil {
			return err
		}
		e.from[r], e.scale[r] = e.g.rings[r].at(w, e.rank, f.windowBytes), 1
	}
	if w >= numWindows {
		if err := e.waitTaken(allRanks, f.counterBase|uint64(w-numWindows+1)); err != nil {
			return err
		}
	}
	dst := window(share(c.Dst, e.rank), w, f.perWindow)
	e.combine(c, dst.Ptr, dst.N, f.t)
	clear(e.from)
	kernel.Copy(e.result(e.rank, w, f), dst.Ptr, dst.Bytes())
	e.storeWord(e.board.progress(), f.counterBase|uint64(w+1))
	return nil
}

// result is where rank r puts what it has reduced of window w: behind its ring.
func (e *Engine) result(r, w int, f *windowCall) unsafe.Pointer {
	ring := e.g.rings[r]
	return unsafe.Add(ring.base, numWindows*ring.win+w%numWindows*f.windowBytes)
}

func (e *Engine) fetchShares(c *engine.Call, f *windowCall, w int, share shareFunc) error {
	n := len(e.g.boards)
	for i := 1; i < n; i++ {
		r := (e.rank + i) % n
		if err := e.waitWord(e.g.boards[r].progress(), r, f.counterBase|uint64(w+1)); err != nil {
			return err
		}
		dst := window(share(c.Dst, r), w, f.perWindow)
		kernel.Copy(dst.Ptr, e.result(r, w, f), dst.Bytes())
	}
	e.storeWord(e.board.taken(), f.counterBase|uint64(w+1))
	return nil
}
