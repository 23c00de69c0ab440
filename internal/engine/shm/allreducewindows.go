package shm

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/wait"
)

// allReduceWindows runs a large AllReduce between processes. Each rank reduces one share
// of every window. For each window a rank
//   - copies the shares that other ranks reduce from its source into its ring,
//   - reduces its own share from its source and the rings of the other ranks,
//   - stores the result in its result area, from where the other ranks copy it; see result.
//
// Three windows are in progress at once: one is filled, one is reduced, one is fetched.
func (e *Engine) allReduceWindows(c *engine.Call, f *windowCall) error {
	n := len(e.g.boards)
	// Shares end at cache lines, so windows begin at cache lines.
	round := 64 / f.t.Size()
	part := ((c.Src.N+n-1)/n + round - 1) / round * round
	share := func(m engine.Mem, r int) engine.Mem {
		lo := min(r*part, m.N)
		return m.Slice(lo, min(part, m.N-lo))
	}
	total := (part + f.perWindow - 1) / f.perWindow
	for w := range total + 2 {
		if e.g.parking.Stopped() {
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

// shareFunc returns the share of m that rank r reduces.
type shareFunc func(m engine.Mem, r int) engine.Mem

// fillShares copies the other ranks' shares of window w into this rank's ring, and
// publishes them in the word staged. The store of the word comes after the copies,
// so a rank that sees the word sees the data.
func (e *Engine) fillShares(c *engine.Call, f *windowCall, w int, share shareFunc) error {
	if w >= numWindows {
		// The window w-numWindows is free once every other rank has reduced it.
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

// waitProgress waits until the progress word of every other rank is at least least.
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

// reduceShare reduces this rank's share of window w and publishes the result in the
// progress word.
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

// result returns where rank r stores its reduced share of window w: in its result area, the
// part of its segment that follows the numWindows windows of its ring.
func (e *Engine) result(r, w int, f *windowCall) unsafe.Pointer {
	ring := e.g.rings[r]
	return unsafe.Add(ring.base, numWindows*ring.win+w%numWindows*f.windowBytes)
}

// fetchShares copies the other ranks' results of window w into the destination.
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
