package shm

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// fingerprintBytes is the size, in bytes, of a call's fingerprint in a slot that several
// calls share.
const fingerprintBytes = int(unsafe.Sizeof(engine.Fingerprint{}))

// oneHop reports whether all ranks read all slots for a verb with small data. In
// these verbs every rank waits for all others anyway.
func oneHop(v engine.Verb) bool {
	switch v {
	case engine.AllReduce, engine.Barrier, engine.Split, engine.Dup, engine.Alloc:
		return true
	}
	return false
}

// callsPerSlot returns how many of the first calls fit into one slot. All ranks
// compute the same number, because it follows from the fingerprints. Zero: the
// first call is too large for a slot.
func (e *Engine) callsPerSlot(calls []engine.Call) int {
	left := e.g.opt.Small
	if len(calls) == 1 {
		if e.slotBytesOf(&calls[0]) > left {
			return 0
		}
		return 1
	}
	for i := range calls {
		c := &calls[i]
		need := (e.slotBytesOf(c)+7)/8*8 + fingerprintBytes
		if c.Labelled() {
			need += engine.LabelBytes
		}
		if need > left {
			// A call that is alone in a slot needs no fingerprint in the data area.
			if i == 0 && e.slotBytesOf(c) <= left {
				return 1
			}
			return i
		}
		left -= need
	}
	return len(calls)
}

// slotBytesOf returns how many bytes of a slot's data area a call needs on every
// rank. The result is larger than any slot if the call's data cannot go through a
// slot.
func (e *Engine) slotBytesOf(c *engine.Call) int {
	const tooLarge = 1 << 40
	n := len(e.g.boards)
	if c.Verb == engine.AllReduce { // the call that must be fast
		return c.Src.Bytes()
	}
	v := c.Verb.Info()
	switch {
	case v.Source.Ranks == engine.NoRank:
		return 0
	case c.Uneven || e.prefersVMRead(c):
		return tooLarge
	case !v.Source.Divided || v.Dest.Divided:
		return c.Src.Bytes()
	case c.Dst.Bytes() > e.g.opt.Small: // the product below may overflow
		return tooLarge
	}
	return c.Dst.Bytes() * n
}

// runSmall runs calls whose data fits into one slot: one step for all of them. Every rank reads the slots of
// all ranks. It returns an error if a rank's calls differ, or the wait for a rank ends.
func (e *Engine) runSmall(calls []engine.Call) error {
	var h *header
	var err error
	if len(calls) == 1 {
		if h, err = e.beginCall(&calls[0]); err != nil {
			return err
		}
		e.fillSlot(h, &calls[0])
	} else {
		if h, err = e.beginStep(); err != nil {
			return err
		}
		e.head.sig = engine.Fingerprint{Verb: engine.Group, Count: int64(len(calls))}
		e.head.n = 0
		off := headerBytes
		for i := range calls {
			off = e.putSharedCall(h, &calls[i], off)
		}
	}
	e.publishDeferred(h)
	e.prefetchNextSlots(calls[0].Src.Bytes())
	for r := range e.g.boards {
		if r == e.rank {
			e.from[r], e.scale[r] = calls[0].Src.Ptr, e.factor(&calls[0])
			continue
		}
		h, err := e.awaitSlot(r)
		if err != nil {
			return err
		}
		e.from[r], e.scale[r] = h.data(), 1
	}
	// A rank that has published this step has finished reading the previous one.
	e.allDone = max(e.allDone, e.step-1)
	switch c := &calls[0]; {
	case len(calls) > 1:
		err = e.takeSharedResults(calls)
	case c.Verb == engine.AllReduce:
		e.combine(c, c.Dst.Ptr, c.Dst.N, c.Dst.Type)
	default:
		err = e.takeResults(c)
	}
	if err != nil {
		return err
	}
	e.from[e.rank] = nil
	return nil
}

// fillSlot writes a call's data: into e.head's tail if it fits there, otherwise
// into the slot.
func (e *Engine) fillSlot(h *header, c *engine.Call) {
	e.head.n = int64(c.Src.N)
	if e.head.inTail() {
		e.putData(c, unsafe.Pointer(&e.head.tail))
	} else {
		e.putData(c, h.dataAfterHeader(&e.head.sig))
	}
}

// putData writes this rank's data to p, multiplied by its factor if it has one.
func (e *Engine) putData(c *engine.Call, p unsafe.Pointer) {
	if e.readers(c) == readByNone {
		return
	}
	if c.Scales() {
		kernel.Scale(p, c.Src.Ptr, c.Src.N, c.Src.Type, e.factor(c))
		return
	}
	kernel.Copy(p, c.Src.Ptr, c.Src.Bytes())
}

// putSharedCall writes one of several calls to the slot, at offset off, and returns
// the offset of the next call.
func (e *Engine) putSharedCall(h *header, c *engine.Call, off int) int {
	s := (*engine.Fingerprint)(h.at(off))
	c.PutFingerprint(s)
	if s.Name != 0 {
		c.PutLabel(labelAt(h.at(off + fingerprintBytes)))
	}
	e.putData(c, h.at(off+fingerprintBytes+storedLabelBytes(s)))
	return e.nextCallOffset(c, s, off)
}

// nextCallOffset returns the offset of the call behind the call at off.
func (e *Engine) nextCallOffset(c *engine.Call, s *engine.Fingerprint, off int) int {
	return off + fingerprintBytes + storedLabelBytes(s) + (e.slotBytesOf(c)+7)/8*8
}

// takeSharedResults completes the calls that share the current slots, in order, until the first error.
func (e *Engine) takeSharedResults(calls []engine.Call) error {
	e.slotShared, e.callOffset = true, headerBytes
	mine := e.board.slot(e.step)
	var err error
	for i := range calls {
		c := &calls[i]
		e.op = c.Op()
		if err = e.compareShared(mine); err == nil {
			err = e.takeResults(c)
		}
		if err != nil {
			break
		}
		e.callOffset = e.nextCallOffset(c, (*engine.Fingerprint)(mine.at(e.callOffset)), e.callOffset)
	}
	e.slotShared = false
	return err
}

// compareShared checks that all ranks agree on the call at e.callOffset.
func (e *Engine) compareShared(mine *header) error {
	s := (*engine.Fingerprint)(mine.at(e.callOffset))
	for r, b := range e.g.boards {
		h := b.slot(e.step)
		if t := (*engine.Fingerprint)(h.at(e.callOffset)); *t != *s {
			return e.mismatch(readCall(s, mine.at(e.callOffset+fingerprintBytes)), r, readCall(t, h.at(e.callOffset+fingerprintBytes)))
		}
	}
	return nil
}

// sourceInSharedSlot is sourceOf for a call that shares its slot with others. All
// ranks have already arrived.
func (e *Engine) sourceInSharedSlot(c *engine.Call, r int) (sourceView, error) {
	h := e.g.boards[r].slot(e.step)
	s := (*engine.Fingerprint)(h.at(e.callOffset))
	n := e.slotBytesOf(c) / max(s.Type.Size(), 1)
	return sourceView{src: engine.Mem{Ptr: h.at(e.callOffset + fingerprintBytes + storedLabelBytes(s)), N: n, Type: s.Type}, scale: 1}, nil
}
