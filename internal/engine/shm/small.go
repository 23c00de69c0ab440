package shm

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// sigBytes is a call's fingerprint in a slot that several calls share.
const sigBytes = int(unsafe.Sizeof(engine.Sig{}))

// oneHop reports whether a verb, when its data is small, is best done by all
// ranks reading all slots: they all wait for all others anyway.
func oneHop(v engine.Verb) bool {
	switch v {
	case engine.AllReduce, engine.Barrier, engine.Split, engine.Dup, engine.Alloc:
		return true
	}
	return false
}

// together returns how many of the first calls fit into one slot. All ranks
// come to the same number, because it follows from the fingerprints.
func (e *Engine) together(calls []engine.Call) int {
	room := e.g.opt.Small
	if len(calls) == 1 {
		if e.room(&calls[0]) > room {
			return 0
		}
		return 1
	}
	for i := range calls {
		c := &calls[i]
		need := (e.room(c)+7)/8*8 + sigBytes
		if c.Name != "" {
			need += nameBytes
		}
		if need > room {
			// The first one needs no fingerprint of its own if it is alone.
			if i == 0 && e.room(c) <= room {
				return 1
			}
			return i
		}
		room -= need
	}
	return len(calls)
}

// room is how many bytes of a slot a call needs on every rank; more than there
// are if its data cannot go through a slot.
func (e *Engine) room(c *engine.Call) int {
	const never = 1 << 40
	n := len(e.g.boards)
	switch c.Verb {
	case engine.AllReduce:
		return c.Src.Bytes()
	case engine.Barrier, engine.Dup, engine.Alloc:
		return 0
	case engine.ReduceScatter, engine.Scatter:
		if c.Uneven || c.Dst.Bytes() > e.g.opt.Small {
			return never
		}
		return c.Dst.Bytes() * n
	case engine.AllToAll:
		if c.Uneven {
			return never
		}
		return c.Dst.Bytes()
	}
	if c.Uneven || e.swaps(c) {
		return never
	}
	return c.Src.Bytes()
}

// small carries out calls whose data fits into one slot.
func (e *Engine) small(calls []engine.Call) error {
	var h *header
	var err error
	if len(calls) == 1 {
		if h, err = e.beginCall(&calls[0]); err != nil {
			return err
		}
		e.fill(h, &calls[0])
	} else {
		if h, err = e.begin(); err != nil {
			return err
		}
		e.head.sig = engine.Sig{Verb: engine.Group, Count: int64(len(calls))}
		e.head.n = 0
		off := headerBytes
		for i := range calls {
			off = e.putShared(h, &calls[i], off)
		}
	}
	e.post(h)
	e.claimNext(calls[0].Src.Bytes())
	for r := range e.g.boards {
		if r == e.rank {
			e.from[r], e.scale[r] = calls[0].Src.Ptr, e.factor(&calls[0])
			continue
		}
		h, err := e.await(r)
		if err != nil {
			return err
		}
		e.from[r], e.scale[r] = h.data(), 1
	}
	// Who is in this step has finished the one before.
	e.clear = max(e.clear, e.step-1)
	switch c := &calls[0]; {
	case len(calls) > 1:
		err = e.consumeShared(calls)
	case c.Verb == engine.AllReduce:
		e.combine(c, c.Dst.Ptr, c.Dst.N, c.Dst.Type)
	default:
		err = e.consume(c)
	}
	if err != nil {
		return err
	}
	e.from[e.rank] = nil
	return nil
}

// fill writes a call's data into the slot; into the head that the slot will
// get, if there is room.
func (e *Engine) fill(h *header, c *engine.Call) {
	e.head.n = int64(c.Src.N)
	if e.head.small() {
		e.put(c, unsafe.Pointer(&e.head.tail))
	} else {
		e.put(c, h.after(&e.head.sig))
	}
}

// put writes this rank's data, multiplied by its factor if it has one.
func (e *Engine) put(c *engine.Call, p unsafe.Pointer) {
	if e.readers(c) == nobody {
		return
	}
	if scaled(c) {
		kernel.Scale(p, c.Src.Ptr, c.Src.N, c.Src.Type, e.factor(c))
		return
	}
	kernel.Copy(p, c.Src.Ptr, c.Src.Bytes())
}

// putShared writes one of several calls at off, and returns where the next
// one goes.
func (e *Engine) putShared(h *header, c *engine.Call, off int) int {
	s := (*engine.Sig)(h.at(off))
	c.PutSig(s)
	if s.Name != 0 {
		putName(h.at(off+sigBytes), c.Name)
	}
	e.put(c, h.at(off+sigBytes+nameRoom(s)))
	return e.after(c, s, off)
}

// after is where the call behind one at off begins.
func (e *Engine) after(c *engine.Call, s *engine.Sig, off int) int {
	return off + sigBytes + nameRoom(s) + (e.room(c)+7)/8*8
}

// consumeShared carries out the calls that share the present slots.
func (e *Engine) consumeShared(calls []engine.Call) error {
	e.group, e.off = true, headerBytes
	mine := e.board.slot(e.step)
	var err error
	for i := range calls {
		c := &calls[i]
		e.op = c.Op()
		if err = e.compareShared(mine); err == nil {
			err = e.consume(c)
		}
		if err != nil {
			break
		}
		e.off = e.after(c, (*engine.Sig)(mine.at(e.off)), e.off)
	}
	e.group = false
	return err
}

// compareShared checks that the ranks agree on the call at e.off.
func (e *Engine) compareShared(mine *header) error {
	s := (*engine.Sig)(mine.at(e.off))
	for r, b := range e.g.boards {
		h := b.slot(e.step)
		if t := (*engine.Sig)(h.at(e.off)); *t != *s {
			return e.mismatch(describe(s, mine.at(e.off+sigBytes)), r, describe(t, h.at(e.off+sigBytes)))
		}
	}
	return nil
}

// reachShared is reach for a call that shares its slot with others.
func (e *Engine) reachShared(c *engine.Call, r int) (view, error) {
	h := e.g.boards[r].slot(e.step)
	s := (*engine.Sig)(h.at(e.off))
	n := e.room(c) / max(s.Type.Size(), 1)
	return view{src: engine.Mem{Ptr: h.at(e.off + sigBytes + nameRoom(s)), N: n, Type: s.Type}, scale: 1}, nil
}
