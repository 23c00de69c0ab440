package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/wait"
)

// Between processes, a rank cannot access the buffers of another rank directly.
// Data that is too large for a slot goes through a ring in the rank's segment,
// window by window. The other ranks copy each window while it is still in a cache.
// The word staged counts the windows that a rank has filled, the word taken those
// that it has emptied. In a large AllReduce the word progress counts the windows
// whose share the rank has reduced. All three hold the number of the large call in
// their upper bits, so they only grow.

// numWindows is the number of windows in a ring: one is filled while the others are
// emptied.
const numWindows = 3

// Bounds, in bytes, of a window in verbs in which not all ranks fill windows at the
// same time: see windowBytes.
const (
	minWindow      = 16 << 10
	maxWindow      = 128 << 10
	windowsPerCall = 16 // between these bounds a call is divided into this many windows
)

// ring is the memory of a rank's windows.
type ring struct {
	base unsafe.Pointer
	win  int // size of one window, in bytes
}

// at returns the address of share s in window w; each share has the given number of
// bytes.
func (r ring) at(w, s, bytes int) unsafe.Pointer {
	return unsafe.Add(r.base, w%numWindows*r.win+s*bytes)
}

// windowSource is what this rank takes of one rank in a call.
type windowSource struct {
	rank       int
	ptr        unsafe.Pointer // where the elements are, if not in windows
	remoteAddr uint64         // where they are in that rank's process, if they are read from there; else zero
	n          int            // number of elements
	scale      float64        // factor by which the elements are still to be multiplied
	dst        engine.Mem     // where the elements go, if they are not combined
}

// windowCall is the layout of a call whose data goes through windows.
type windowCall struct {
	t           kernel.DType
	shares      bool   // the source has a share for every rank
	combine     bool   // the destination is a reduction of the sources
	perWindow   int    // elements of a window, or of each share in it
	windowBytes int    // perWindow in bytes
	toFill      int    // windows that this rank fills
	toEmpty     int    // windows that this rank empties
	counterBase uint64 // the call's number in the upper bits of staged, taken and progress
	// readsBuffers: this rank reads other ranks' own buffers, so it must check
	// withdrawn.
	readsBuffers bool
	// dstHoldsSource: the destination already holds a source that was copied from
	// another process and is to be combined.
	dstHoldsSource bool
}

// runWindows runs one call whose data may not fit into slots. If a rank leaves, the
// group fails or the context ends, every wait in it returns an error.
func (e *Engine) runWindows(c *engine.Call) error {
	h, err := e.beginCall(c)
	if err != nil {
		return err
	}
	e.largeCalls++
	f := windowCall{t: e.head.sig.Type, counterBase: e.largeCalls << pieceBits}
	parts := c.Verb == engine.AllReduce
	f.shares = c.Verb.Info().Source.Divided
	f.combine = c.Verb.Reduces() && !parts
	f.windowBytes = e.windowBytes(e.head.sig, parts || f.shares)
	f.perWindow = f.windowBytes / f.t.Size()
	produce := e.announce(h, c, &f)
	e.publishDeferred(h)
	if e.mustCompare(c) {
		if err := e.compareArrived(); err != nil {
			return err
		}
	}
	if c.Verb == engine.AllReduce && e.head.n == direct {
		e.exposedStep = e.step
		all, err := e.allDirect(c)
		if err != nil {
			return err
		}
		if all {
			if err := e.exchangeParts(c); err != nil {
				return err
			}
			return e.checkNotWithdrawn()
		}
	}
	if produce > 0 {
		if err := e.waitRingFree(c); err != nil {
			return err
		}
	}
	if parts {
		err = e.allReduceWindows(c, &f)
	} else {
		f.toFill = (produce + f.perWindow - 1) / f.perWindow
		err = e.moveWindows(c, &f)
	}
	if err != nil {
		return err
	}
	if err := e.finishCall(c); err != nil {
		return err
	}
	if f.readsBuffers {
		if err := e.checkNotWithdrawn(); err != nil {
			return err
		}
	}
	switch {
	case e.head.n != direct && e.head.n != remote || c.Verb == engine.AllReduce:
	case e.readers(c) == readByRoot:
		return e.awaitReader(c.Root)
	default:
		e.exposedStep = e.step
	}
	return nil
}

// windowBytes returns how many bytes of a call go through one window, or through
// one rank's share of it. In AllReduce all ranks fill windows at the same time;
// large windows are best, because a line is reused long after the others have read
// it. In the other verbs some ranks wait for the first window, so a window is a
// fraction of the whole.
func (e *Engine) windowBytes(s engine.Fingerprint, divided bool) int {
	n := e.g.rings[e.rank].win
	if divided {
		n /= len(e.g.boards)
	}
	if s.Verb != engine.AllReduce {
		n = min(n, maxWindow)
		if !s.Uneven {
			n = min(n, max(minWindow, int(s.Count)*s.Type.Size()/windowsPerCall))
		}
	}
	return n / lineBytes * lineBytes
}

// checkNotWithdrawn returns an error if data that this rank has read in other
// ranks' own buffers may have changed meanwhile. A rank whose operation fails
// stores withdrawn before its caller gets the buffers back. This rank loads
// withdrawn after its reads and after it has stored done. If it loads zero, all its
// reads came before the owner's store, so the data is valid. If not, it waits for
// the failure, which the owner reports to all ranks.
func (e *Engine) checkNotWithdrawn() error {
	for r, b := range e.g.boards {
		if r != e.rank && b.withdrawn().Load() != 0 {
			// The wait cannot succeed. It ends with the cause, with the context, or
			// with the timeout.
			var never atomic.Uint64
			_, err := e.w.AtLeast(&never, 1, nil)
			return err
		}
	}
	return nil
}

// announce writes to the slot's header what this rank has for the other ranks. It
// returns how many elements go through windows; if the source has shares, how many
// of one share.
func (e *Engine) announce(h *header, c *engine.Call, f *windowCall) (produce int) {
	e.head.n = 0
	switch {
	case e.readers(c) == readByNone:
		return 0
	case f.shares && c.Uneven:
		// The slot holds the counts of all ranks; each rank reads its own.
		counts := unsafe.Slice((*int64)(h.dataAfterHeader(&e.head.sig)), len(c.SrcParts))
		for r, m := range c.SrcParts {
			counts[r] = int64(m.N)
			produce = max(produce, m.N)
		}
		e.head.n = windowed
		return produce
	case !f.shares && c.Src.Bytes() <= e.g.opt.Small && !(e.prefersVMRead(c) && e.readable()):
		e.fillSlot(h, c)
		return 0
	case c.Verb == engine.AllReduce && e.announceRegion(h, c, true):
		// It is not known yet whether all other ranks have announced regions. If
		// not, the data goes through windows.
		return c.Src.N
	case c.Verb != engine.AllReduce && !inPlace(c) && (e.announceRegion(h, c, false) || e.announceRemote(c)):
		return 0
	case f.shares:
		e.head.n = windowed
		return c.Src.N / len(e.g.boards)
	}
	e.head.n = windowed - int64(c.Src.N)
	return c.Src.N
}

// inPlace reports whether a call overwrites the part of this rank's source that the
// other ranks may still read in place.
func inPlace(c *engine.Call) bool { return c.Verb == engine.AllToAll && c.Src.Ptr == c.Dst.Ptr }

// windowed, as header.n, says that the data goes through windows. Values below it
// hold the number of elements too, as windowed minus that number, where the
// receiver cannot know it otherwise.
const windowed = direct - 1

// storeWord stores v in a word of this rank and wakes the ranks that wait for it.
func (e *Engine) storeWord(word *atomic.Uint64, v uint64) {
	word.Store(v)
	e.g.parking.Wake(word)
}

// waitWord waits until a word of rank r is at least least. It returns an error if
// rank r leaves, the group fails, or the wait is cancelled or times out.
func (e *Engine) waitWord(word *atomic.Uint64, r int, least uint64) error {
	ok, err := e.w.AtLeast(word, least, e.g.boards[r].left())
	if err != nil {
		return err
	}
	if !ok {
		return e.rankLeft([]int{r}, e.op, e.seq)
	}
	return nil
}

// waitRingFree waits until no rank needs what an earlier call left in this rank's
// ring.
func (e *Engine) waitRingFree(c *engine.Call) error {
	if e.ringCall > 0 {
		if err := e.waitTaken(e.ringReader, (e.ringCall+1)<<pieceBits); err != nil {
			return err
		}
	}
	e.ringCall, e.ringReader = e.largeCalls, allRanks
	if e.readers(c) == readByRoot {
		e.ringReader = c.Root
	}
	return nil
}

// allRanks, in place of a root, says that all ranks read this rank's ring.
const allRanks = -1

// waitTaken waits until the readers of this rank's ring (the root, or allRanks)
// have stored at least least in taken.
func (e *Engine) waitTaken(root int, least uint64) error {
	if root != allRanks {
		return e.waitWord(e.g.boards[root].taken(), root, least)
	}
	for r, b := range e.g.boards {
		if r == e.rank {
			continue
		}
		if err := e.waitWord(b.taken(), r, least); err != nil {
			return err
		}
	}
	return nil
}

// moveWindows fills this rank's windows and empties the others' in turns, so that
// window w+1 is filled while window w is emptied.
func (e *Engine) moveWindows(c *engine.Call, f *windowCall) error {
	if f.toFill > 0 {
		if err := e.fillWindow(c, f, 0); err != nil {
			return err
		}
	}
	most, err := e.findSources(c, f)
	if err != nil {
		return err
	}
	f.toEmpty = (most + f.perWindow - 1) / f.perWindow
	if f.toEmpty == 0 {
		e.storeAllTaken()
	}
	for w := range max(f.toFill-1, f.toEmpty) {
		if e.g.parking.Stopped() {
			return wait.ErrStopped
		}
		if w+1 < f.toFill {
			if err := e.fillWindow(c, f, w+1); err != nil {
				return err
			}
		}
		if w < f.toEmpty {
			if err := e.emptyWindow(c, f, w); err != nil {
				return err
			}
			if w+1 < f.toEmpty {
				e.storeWord(e.board.taken(), f.counterBase|uint64(w+1))
			} else {
				e.storeAllTaken()
			}
		}
	}
	return nil
}

// storeAllTaken announces that this rank needs no more windows of this call, even
// if the other ranks exchange more among themselves.
func (e *Engine) storeAllTaken() { e.storeWord(e.board.taken(), (e.largeCalls+1)<<pieceBits) }

// fillWindow copies window w of this rank's source into its ring, and publishes it. It first waits until all
// readers have taken the window whose place it reuses.
func (e *Engine) fillWindow(c *engine.Call, f *windowCall, w int) error {
	if w >= numWindows {
		if err := e.waitTaken(e.ringReader, f.counterBase|uint64(w-numWindows+1)); err != nil {
			return err
		}
	}
	out := e.g.rings[e.rank]
	if !f.shares {
		src := window(c.Src, w, f.perWindow)
		e.copyIn(c, out.at(w, 0, 0), src)
		if c.Verb == engine.AllGather { // the window is still in the cache
			engine.Copy(window(c.DstPart(e.rank, len(e.g.boards)), w, f.perWindow), src)
		}
	} else {
		for r := range e.g.boards {
			if r != e.rank {
				e.copyIn(c, out.at(w, r, f.windowBytes), window(c.SrcPart(r, len(e.g.boards)), w, f.perWindow))
			}
		}
	}
	e.storeWord(e.board.staged(), f.counterBase|uint64(w+1))
	return nil
}

// window returns the part of m that is in window w, when a window has per elements.
func window(m engine.Mem, w, per int) engine.Mem {
	lo := min(w*per, m.N)
	return m.Slice(lo, min(per, m.N-lo))
}

// copyIn copies elements for other ranks to p, multiplied by this rank's factor if
// it has one.
func (e *Engine) copyIn(c *engine.Call, p unsafe.Pointer, m engine.Mem) {
	if m.N == 0 {
		return
	}
	if c.Scales() {
		kernel.Scale(p, m.Ptr, m.N, m.Type, e.factor(c))
		return
	}
	kernel.Copy(p, m.Ptr, m.Bytes())
}

// findSources collects in e.sources what this rank takes of which rank, and returns
// the largest number of elements among them. It copies this rank's own share at
// once, and reads buffers of other processes where they are announced.
func (e *Engine) findSources(c *engine.Call, f *windowCall) (most int, err error) {
	e.sources = e.sources[:0]
	n := len(e.g.boards)
	add := func(r int, dst engine.Mem) error {
		if f.combine || r != e.rank {
			in, err := e.sourceFrom(c, f, r, dst)
			if err != nil {
				return err
			}
			switch {
			case in.remoteAddr != 0 && !f.combine:
				return e.vmread(r, dst, in.remoteAddr)
			case in.remoteAddr != 0 && !f.dstHoldsSource && dst.Ptr != c.Src.Ptr:
				// The first remote source is read into the destination and combined
				// there, which needs less cache than scratch memory.
				f.dstHoldsSource, in.ptr = true, dst.Ptr
				if err := e.vmread(r, dst, in.remoteAddr); err != nil {
					return err
				}
			case in.remoteAddr != 0:
				if in.ptr, err = e.vmreadToScratch(r, dst, in.remoteAddr); err != nil {
					return err
				}
			}
			e.sources = append(e.sources, in)
			most = max(most, dst.N)
		} else if f.shares {
			engine.Copy(dst, c.SrcPart(r, n))
		} else if c.Verb != engine.AllGather || f.toFill == 0 {
			engine.Copy(dst, c.Src)
		}
		return nil
	}
	switch v := c.Verb.Info(); {
	case !v.Dest.Ranks.Has(e.rank, c.Root):
		return 0, nil
	case v.Source.Ranks == engine.RootOnly:
		return most, add(c.Root, c.Dst)
	}
	for i := range n {
		r := i
		dst := c.Dst
		if !f.combine {
			// Each rank begins with itself, so that not all ranks read the same
			// rank at once.
			r = (e.rank + i) % n
			dst = c.DstPart(r, n)
		}
		if err := add(r, dst); err != nil {
			return 0, err
		}
	}
	return most, nil
}

// sourceFrom waits until rank r has arrived, and checks that it has as many
// elements as this rank expects.
func (e *Engine) sourceFrom(c *engine.Call, f *windowCall, r int, dst engine.Mem) (windowSource, error) {
	in := windowSource{rank: r, n: dst.N, dst: dst}
	if r == e.rank {
		in.scale = e.factor(c)
		return in, nil
	}
	h, err := e.awaitSlot(r)
	if err != nil {
		return in, err
	}
	has := dst.N
	in.scale = 1
	switch {
	case h.n == remote:
		p := h.remoteBuffer()
		f.readsBuffers = true
		in.remoteAddr, in.scale = p.addr, p.scale
		if f.shares {
			in.remoteAddr += uint64(e.rank * dst.Bytes())
		} else {
			has = int(p.n)
		}
	case h.n == direct:
		p := (*regionBuffer)(h.data())
		at, err := e.resolve(r, p.src)
		if err != nil {
			return in, err
		}
		f.readsBuffers = true
		in.ptr, in.scale = at, p.scale
		if f.shares {
			in.ptr = unsafe.Add(at, e.rank*dst.Bytes())
		} else {
			has = int(p.n)
		}
	case f.shares && c.Uneven:
		has = int(unsafe.Slice((*int64)(h.data()), len(e.g.boards))[e.rank])
	case f.shares:
	case h.n >= 0:
		has, in.ptr = int(h.n), h.data()
	default:
		has = int(windowed - h.n)
	}
	if has != dst.N {
		return in, e.countMismatch(r, dst.N, has)
	}
	return in, nil
}

// emptyWindow copies or combines window w of all sources into the destination. It waits for each source's
// rank to fill the window.
func (e *Engine) emptyWindow(c *engine.Call, f *windowCall, w int) error {
	for i := range e.sources {
		in := &e.sources[i]
		lo := w * f.perWindow
		if lo >= in.n {
			continue
		}
		m := min(f.perWindow, in.n-lo)
		src, err := e.windowOf(c, f, in, w)
		if err != nil {
			return err
		}
		if f.combine {
			e.from[in.rank], e.scale[in.rank] = src, in.scale
		} else {
			kernel.Copy(in.dst.At(lo), src, m*f.t.Size())
		}
	}
	if f.combine && len(e.sources) > 0 {
		win := window(c.Dst, w, f.perWindow)
		e.combine(c, win.Ptr, win.N, f.t)
		clear(e.from)
	}
	return nil
}

// windowOf returns the address of window w of a source. It waits until the source's
// rank has filled the window.
func (e *Engine) windowOf(c *engine.Call, f *windowCall, in *windowSource, w int) (unsafe.Pointer, error) {
	off := w * f.windowBytes
	switch {
	case in.rank == e.rank && f.shares:
		return unsafe.Add(c.SrcPart(e.rank, len(e.g.boards)).Ptr, off), nil
	case in.rank == e.rank:
		return unsafe.Add(c.Src.Ptr, off), nil
	case in.ptr != nil:
		return unsafe.Add(in.ptr, off), nil
	}
	if err := e.waitWord(e.g.boards[in.rank].staged(), in.rank, f.counterBase|uint64(w+1)); err != nil {
		return nil, err
	}
	if f.shares {
		return e.g.rings[in.rank].at(w, e.rank, f.windowBytes), nil
	}
	return e.g.rings[in.rank].at(w, 0, 0), nil
}
