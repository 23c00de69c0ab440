package shm

import (
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// An exposure holds the buffers of one rank that other ranks may read in a step.
// The owner writes it before it publishes the step, and clears it when the other
// ranks have finished reading.
type exposure struct {
	src   engine.Mem
	parts []engine.Mem // in place of src, where the counts differ per rank
	dst   engine.Mem   // where the parts of a large AllReduce or the results of a Scan appear
	scale float64      // factor by which a reader multiplies the elements
}

// A sourceView is the location of one rank's source for the current call.
type sourceView struct {
	src   engine.Mem
	parts []engine.Mem
	scale float64
}

// part returns the share that is meant for rank r.
func (v *sourceView) part(r, size int) engine.Mem {
	if v.parts != nil {
		return v.parts[r]
	}
	n := v.src.N / size
	return v.src.Slice(r*n, n)
}

// sourceOf returns rank r's source of the current call. It waits until r has
// arrived.
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

// exposed returns the buffers that rank r exposes in the current step.
func (e *Engine) exposed(r int) *exposure {
	if e.g.shared != nil {
		return &e.peerExposures[r]
	}
	return &e.g.ranks[r].exposures[e.step%slotsPerBoard]
}

// expose makes this rank's buffers readable for the other ranks in the current
// step. src is the call's source or a copy of it.
func (e *Engine) expose(c *engine.Call, src engine.Mem) {
	e.exposures[e.step%slotsPerBoard] = exposure{src, c.SrcParts, c.Dst, e.factor(c)}
}

// maxSpareBytes is the largest copy for a call in place that is kept for the
// next one, in bytes.
const maxSpareBytes = 1 << 20

// clearExposures drops the buffers, so that the engine does not keep them alive.
func (e *Engine) clearExposures() {
	e.exposures = [slotsPerBoard]exposure{}
	e.exposedStep, e.vmreadExposed = 0, false
	if cap(e.inPlaceCopy) > maxSpareBytes {
		e.inPlaceCopy = nil
	}
}

// startReading announces that this rank may read other ranks' buffers, unless the
// group has failed. It stores reading and then loads the stop flag. A rank whose
// operation fails sets the stop flag and then loads reading. One of the two
// therefore sees the other, so no rank reads a buffer after its owner has returned
// from Run.
func (e *Engine) startReading() error {
	e.board.reading().Store(1)
	if e.g.parking.Stopped() {
		return wait.ErrStopped
	}
	return nil
}

func (e *Engine) stopReading() { // stopReading announces that this rank reads no buffers of other ranks.
	if e.board.reading().Load() != 0 {
		e.board.reading().Store(0)
	}
}

// factor returns the number by which each element of this rank is multiplied before
// the sum.
func (e *Engine) factor(c *engine.Call) float64 { return c.Factor(len(e.g.boards)) }

// at returns the address of byte i of the slot.
func (h *header) at(i int) unsafe.Pointer { return unsafe.Add(unsafe.Pointer(h), i) }
