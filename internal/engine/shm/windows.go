package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/wait"
)

// Between processes a rank's buffers are its own: what is too large for a slot
// goes, window after window, through a ring in the rank's segment, from where
// the others take it while it is in a cache. The word staged counts the windows
// that are there, the word taken those that a rank has done with. Both carry
// the call's number in their upper bits, so that they only ever grow.

// windows is how many of them a ring holds: one is filled while the others are
// emptied.
const numWindows = 3

// Bounds of what goes through one window where not all ranks fill windows at
// once: see windowBytes.
const (
	minWindow      = 16 << 10
	maxWindow      = 128 << 10
	windowsPerCall = 16 // a call is divided into so many windows between these bounds
)

// A ring is where a rank's windows lie.
type ring struct {
	base unsafe.Pointer
	win  int // bytes of one window
}

// at is the address of share s, of so many bytes, in window w.
func (r ring) at(w, s, bytes int) unsafe.Pointer {
	return unsafe.Add(r.base, w%numWindows*r.win+s*bytes)
}

// An intake is what this rank takes of one rank in a step.
type windowSource struct {
	rank       int
	ptr        unsafe.Pointer // where it lies, if not in windows
	remoteAddr uint64         // where it lies in that rank's process, if it is there
	n          int            // elements
	scale      float64        // what they are still to be multiplied by
	dst        engine.Mem     // where it goes, if it is not combined
}

// flow is the shape of a call whose data goes through windows.
type windowCall struct {
	t           kernel.DType
	shares      bool // the source has a share for every rank
	combine     bool
	perWindow   int // elements of a window, or of each share in it
	windowBytes int // the same in bytes
	toFill      int // windows that this rank fills
	toEmpty     int // windows that it empties
	counterBase uint64
	// Somebody's own buffers are read.
	readsBuffers bool
	// The destination holds what came first of another rank's process, to be combined.
	dstHoldsSource bool
}

// stream carries out one call whose data may not fit into slots.
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
		return e.awaitRoot(c.Root)
	default:
		e.exposedStep = e.step
	}
	return nil
}

// windowBytes is how much of a call goes through one window, or through one
// rank's share of it. A window that fills the ring's place is best where all
// ranks do the same at once, and come back to a line long after the others have
// read it. Where some wait for the first window of others, it is a part of the
// whole.
func (e *Engine) windowBytes(s engine.Sig, divided bool) int {
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

// intact finds out whether what was read in others' own buffers was still what
// they had put there: a rank whose operation fails gives its buffers back to its
// caller. It says so before that, and all hear the reason. This rank must have
// said that it has finished: that comes after its reads, and before this.
func (e *Engine) checkNotWithdrawn() error {
	for r, b := range e.g.boards {
		if r != e.rank && b.withdrawn().Load() != 0 {
			var never atomic.Uint64
			_, err := e.w.AtLeast(&never, 1, nil)
			return err
		}
	}
	return nil
}

// announce says in the slot what this rank has for the others, and returns how
// many elements, of one share if it has shares, go through windows.
func (e *Engine) announce(h *header, c *engine.Call, f *windowCall) (produce int) {
	e.head.n = 0
	switch {
	case e.readers(c) == readByNone:
		return 0
	case f.shares && c.Uneven:
		// The counts go into the slot, where each rank finds its own.
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
		// Whether the others are as far is not known yet.
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

// inPlace reports whether a call writes what others still read of this rank's
// source, if they read it in place.
func inPlace(c *engine.Call) bool { return c.Verb == engine.AllToAll && c.Src.Ptr == c.Dst.Ptr }

// windowed in place of the number of elements says that the data goes through
// windows; less the number of elements, where that cannot be known otherwise.
const windowed = direct - 1

// tell stores a word of this rank's and wakes those who wait for it.
func (e *Engine) storeWord(word *atomic.Uint64, v uint64) {
	word.Store(v)
	e.g.lot.Wake(word)
}

// hear waits until a word of rank r's has reached a value.
func (e *Engine) waitWord(word *atomic.Uint64, r int, least uint64) error {
	ok, err := e.w.AtLeast(word, least, e.g.boards[r].left())
	if err != nil {
		return err
	}
	if !ok {
		return e.rankLeft(r, e.op, e.seq)
	}
	return nil
}

// reuseRing waits until nobody needs what an earlier step left in the ring.
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

// everyone, in place of a root, reads this rank's ring.
const allRanks = -1

// hearTaken waits until those who read this rank's ring have taken so much.
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

// streamWindows fills this rank's windows and empties the others', in turns:
// while one is taken, the next is on its way.
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
		if e.g.lot.Stopped() {
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

// takenAll says that this rank needs nothing more of the others' windows, even
// if they have more for each other.
func (e *Engine) storeAllTaken() { e.storeWord(e.board.taken(), (e.largeCalls+1)<<pieceBits) }

// fillWindow copies window w of this rank's source into its ring.
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
		if c.Verb == engine.AllGather { // while it is in the cache
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

// window is the part of m that window w holds, of so many elements.
func window(m engine.Mem, w, per int) engine.Mem {
	lo := min(w*per, m.N)
	return m.Slice(lo, min(per, m.N-lo))
}

// copyIn copies elements for others, multiplied by this rank's factor if it
// has one.
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

// intake finds out what this rank takes of whom, and returns the largest number
// of elements among them. What it has of its own it copies at once.
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
				// Combined where it is: less memory has to be in the cache.
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
			// Not all ranks begin with the same one.
			r = (e.rank + i) % n
			dst = c.DstPart(r, n)
		}
		if err := add(r, dst); err != nil {
			return 0, err
		}
	}
	return most, nil
}

// intakeFrom waits until rank r has arrived, and checks that it has as many
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

// emptyWindow takes window w of everybody's.
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

// windowOf is where window w of an intake lies, once it is there.
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
