package shm

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// An exposure is what one rank lets the others read in a step: its buffers
// themselves. It is written before the step is published and cleared when the
// others have finished.
type exposure struct {
	src   engine.Mem
	parts []engine.Mem // in place of src, where an uneven verb divides it
	dst   engine.Mem   // where the parts of a large AllReduce appear
	scale float64
}

// A view is where the present call's source of some rank lies.
type sourceView struct {
	src   engine.Mem
	parts []engine.Mem
	scale float64
}

// part is the share meant for rank r.
func (v *sourceView) part(r, size int) engine.Mem {
	if v.parts != nil {
		return v.parts[r]
	}
	n := v.src.N / size
	return v.src.Slice(r*n, n)
}

// reach returns rank r's source of the present call, waiting for r if it has
// not arrived.
func (e *Engine) sourceOf(c *engine.Call, r int) (sourceView, error) {
	if r == e.rank {
		return sourceView{c.Src, c.SrcParts, e.factor(c)}, nil
	}
	if e.slotShared {
		return e.sourceInSharedSlot(c, r)
	}
	h, err := e.awaitSlot(r)
	if err != nil {
		return sourceView{}, err
	}
	if h.n != direct {
		return sourceView{src: engine.Mem{Ptr: h.data(), N: int(h.n), Type: h.sig.Type}, scale: 1}, nil
	}
	if err := e.startReading(); err != nil {
		return sourceView{}, err
	}
	x := e.exposed(r)
	return sourceView{x.src, x.parts, x.scale}, nil
}

// exposed is what rank r lets others read in the present step.
func (e *Engine) exposed(r int) *exposure {
	if e.g.shared != nil {
		return &e.peerExposures[r]
	}
	return &e.g.ranks[r].exposures[e.step%slotsPerBoard]
}

// expose opens this rank's buffers to the others for the present step. The
// source is the call's, or a copy of it.
func (e *Engine) expose(c *engine.Call, src engine.Mem) {
	e.exposures[e.step%slotsPerBoard] = exposure{src, c.SrcParts, c.Dst, e.factor(c)}
}

// keepSpare is how much memory for an AllToAll in place is kept for the next.
const maxSpareBytes = 1 << 20

// conceal forgets the buffers, so that the engine does not keep them alive.
func (e *Engine) clearExposures() {
	e.exposures = [slotsPerBoard]exposure{}
	e.exposedStep, e.vmreadExposed = 0, false
	if cap(e.spare) > maxSpareBytes {
		e.spare = nil
	}
}

// startReading announces that this rank may read other ranks' buffers, unless
// the group has failed: a rank whose operation has failed returns, and gives
// its buffers back to its caller, when nobody reads.
func (e *Engine) startReading() error {
	e.board.reading().Store(1)
	if e.g.lot.Stopped() {
		return wait.ErrStopped
	}
	return nil
}

func (e *Engine) stopReading() {
	if e.board.reading().Load() != 0 {
		e.board.reading().Store(0)
	}
}

// factor is what each of this rank's elements is multiplied by before it is
// summed.
func (e *Engine) factor(c *engine.Call) float64 { return c.Factor(len(e.g.boards)) }

// at is the address of the slot's byte i.
func (h *header) at(i int) unsafe.Pointer { return unsafe.Add(unsafe.Pointer(h), i) }
