package shm

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/wait"
)

// A Scan or ExScan whose data fits into slots reads the slots of the ranks before this one. Larger
// data goes along the ranks as a chain, piece by piece: each rank combines the result of the rank
// before it with one more source. Then no rank reads more than two sources, and the pieces of
// several ranks are combined at the same time. Both ways combine the sources from rank 0 on.

// scanLarge runs a Scan or ExScan whose data does not fit into a slot.
func (e *Engine) scanLarge(c *engine.Call) error {
	if e.g.shared != nil {
		return e.scanWindows(c)
	}
	return e.scanParts(c)
}

// takePrefix combines the elements of the ranks that the verb's prefix selects into the destination.
func (e *Engine) takePrefix(c *engine.Call) error {
	n := c.Verb.Info().Prefix.Sources(e.rank, len(e.g.boards))
	for r := range n {
		src, scale, err := e.source(c, r, c.Dst.N, false)
		if err != nil {
			return err
		}
		e.from[r], e.scale[r] = src.Ptr, scale
	}
	all := e.from
	e.from = all[:n]
	e.combine(c, c.Dst.Ptr, c.Dst.N, c.Dst.Type)
	e.from = all
	clear(e.from)
	return nil
}

// addSource sets dst to the combination of acc, a result of the ranks before, and src. The elements of src
// are still to be multiplied by scale.
func addSource(c *engine.Call, dst, acc, src unsafe.Pointer, n int, scale float64) {
	if c.Scales() {
		kernel.ScaleAdd(dst, acc, src, n, c.Src.Type, scale)
		return
	}
	kernel.Reduce(dst, acc, src, n, c.Src.Type, c.ReduceOp.Info().Kernel)
}

// load copies a source, multiplied by its factor if the call has factors.
func load(c *engine.Call, dst, src engine.Mem, scale float64) {
	if c.Scales() {
		kernel.Scale(dst.Ptr, src.Ptr, dst.N, dst.Type, scale)
		return
	}
	engine.Copy(dst, src)
}

// scanParts runs a Scan or ExScan between goroutines. Each rank reads the destination of the rank
// before it, and in an ExScan also the source. When scanParts returns without an error, the rank
// after this one has read this rank's buffers.
func (e *Engine) scanParts(c *engine.Call) error {
	h, err := e.beginCall(c)
	if err != nil {
		return err
	}
	src, err := e.stableSource(c)
	if err != nil {
		return err
	}
	e.head.n = direct
	e.largeCalls++
	e.expose(c, src)
	e.publish(h)
	if err := e.compareArrived(); err != nil {
		return err
	}
	if err := e.chainPieces(c); err != nil {
		return err
	}
	e.stopReading()
	if err := e.finishCall(c); err != nil {
		return err
	}
	if e.rank == len(e.g.boards)-1 {
		return nil
	}
	return e.awaitReader(e.rank + 1)
}

// chainPieces combines this rank's pieces, each as soon as the rank before it has combined its piece.
func (e *Engine) chainPieces(c *engine.Call) error {
	if !c.Verb.Info().Dest.Ranks.Has(e.rank, c.Root) {
		return nil
	}
	var from *exposure // of the rank before
	if e.rank > 0 {
		if _, err := e.awaitSlot(e.rank - 1); err != nil {
			return err
		}
		if err := e.startReading(); err != nil {
			return err
		}
		from = e.exposed(e.rank - 1)
	}
	waits := e.rank > 0 && !e.readsFirstSource(c)
	p := newPartPlan(c.Dst.Bytes(), 1, c.Dst.Type, e.g.opt.Piece)
	for j := range p.pieces {
		if e.g.parking.Stopped() {
			return wait.ErrStopped
		}
		done := e.largeCalls<<pieceBits | uint64(j+1)
		if waits {
			if err := e.waitWord(e.g.boards[e.rank-1].progress(), e.rank-1, done); err != nil {
				return err
			}
		}
		e.scanPiece(c, from, &p, j)
		e.storeWord(e.board.progress(), done)
	}
	return nil
}

// readsFirstSource reports whether this rank reads the source of rank 0 in place of its destination.
// The source of rank 0 is its result, unless it is multiplied: in place, rank 0 then overwrites it.
func (e *Engine) readsFirstSource(c *engine.Call) bool {
	return e.rank == 1 && (c.Verb == engine.ExScan || !c.Scales())
}

// scanPiece combines piece j. from has the buffers of the rank before this one.
func (e *Engine) scanPiece(c *engine.Call, from *exposure, p *partPlan, j int) {
	lo, hi := p.bounds(0, j)
	dst := c.Dst.Slice(lo, hi-lo)
	own := c.Src.Slice(lo, hi-lo)
	switch {
	case e.rank == 0:
		load(c, dst, own, e.factor(c))
	case c.Verb == engine.ExScan && e.rank == 1:
		load(c, dst, from.src.Slice(lo, dst.N), from.scale)
	case c.Verb == engine.ExScan:
		addSource(c, dst.Ptr, from.dst.At(lo), from.src.At(lo), dst.N, from.scale)
	case e.readsFirstSource(c):
		addSource(c, dst.Ptr, from.src.At(lo), own.Ptr, dst.N, e.factor(c))
	default:
		addSource(c, dst.Ptr, from.dst.At(lo), own.Ptr, dst.N, e.factor(c))
	}
}

// scanWindows runs a Scan or ExScan between processes. A rank's windows hold the combination of its
// source and all sources before, for the next rank. The source of rank 0 in an ExScan of two ranks
// goes through no window if rank 1 can read it from the process of rank 0.
func (e *Engine) scanWindows(c *engine.Call) error {
	h, err := e.beginCall(c)
	if err != nil {
		return err
	}
	e.largeCalls++
	f := windowCall{t: e.head.sig.Type, counterBase: e.largeCalls << pieceBits}
	f.windowBytes = e.windowBytes(e.head.sig, false)
	f.perWindow = f.windowBytes / f.t.Size()
	if !e.announceRemote(c) {
		e.head.n = windowed - int64(c.Src.N)
	}
	e.publish(h)
	if err := e.compareArrived(); err != nil {
		return err
	}
	if e.head.n == remote {
		e.storeAllTaken()
		if err := e.finishCall(c); err != nil {
			return err
		}
		return e.awaitReader(e.rank + 1)
	}
	if e.rank > 0 {
		before, err := e.awaitSlot(e.rank - 1)
		if err != nil {
			return err
		}
		if before.n == remote {
			return e.readFirst(c, before.remoteBuffer())
		}
	}
	if e.rank < len(e.g.boards)-1 {
		if err := e.waitRingFree(c); err != nil {
			return err
		}
		e.ringReader = e.rank + 1
	}
	for w := range (c.Src.N + f.perWindow - 1) / f.perWindow {
		if e.g.parking.Stopped() {
			return wait.ErrStopped
		}
		if err := e.scanWindow(c, &f, w); err != nil {
			return err
		}
	}
	e.storeAllTaken()
	return e.finishCall(c)
}

// readFirst completes an ExScan of two processes on rank 1: its result is the source of rank 0.
func (e *Engine) readFirst(c *engine.Call, p *remoteBuffer) error {
	if err := e.vmread(0, c.Dst, p.addr); err != nil {
		return err
	}
	load(c, c.Dst, c.Dst, p.scale)
	e.storeAllTaken()
	if err := e.finishCall(c); err != nil {
		return err
	}
	return e.checkNotWithdrawn()
}

// scanWindow combines window w of the rank before this one with this rank's source, into this rank's
// window if a rank follows, and stores the result. In place, the source is read before the destination
// is written. It waits until the rank before has filled the window and the rank after has taken the
// window whose place is reused.
func (e *Engine) scanWindow(c *engine.Call, f *windowCall, w int) error {
	last := e.rank == len(e.g.boards)-1
	own, dst := window(c.Src, w, f.perWindow), window(c.Dst, w, f.perWindow)
	count := f.counterBase | uint64(w+1)
	sum := dst.Ptr
	if !last {
		if w >= numWindows {
			if err := e.waitTaken(e.ringReader, f.counterBase|uint64(w-numWindows+1)); err != nil {
				return err
			}
		}
		sum = e.g.rings[e.rank].at(w, 0, 0)
	}
	if e.rank == 0 {
		if !last {
			e.copyIn(c, sum, own)
			e.storeWord(e.board.staged(), count)
		}
		if c.Verb == engine.Scan {
			load(c, dst, own, e.factor(c))
		}
		return nil
	}
	if err := e.waitWord(e.g.boards[e.rank-1].staged(), e.rank-1, count); err != nil {
		return err
	}
	in := e.g.rings[e.rank-1].at(w, 0, 0)
	if !last || c.Verb == engine.Scan {
		addSource(c, sum, in, own.Ptr, own.N, e.factor(c))
	}
	if !last {
		e.storeWord(e.board.staged(), count)
	}
	if c.Verb == engine.ExScan {
		kernel.Copy(dst.Ptr, in, dst.Bytes())
	} else if !last {
		kernel.Copy(dst.Ptr, sum, dst.Bytes())
	}
	e.storeWord(e.board.taken(), count)
	return nil
}
