package shm

import (
	"context"
	"errors"

	"github.com/tutti-go/tutti/internal/engine"
)

var _ engine.Settler = (*Engine)(nil)

// Settle waits until all ranks have published the last step in which this rank waited for no other
// rank. See engine.Settler.
func (e *Engine) Settle(ctx context.Context) {
	if e.openStep <= e.allDone || e.g.parking.Stopped() {
		return
	}
	e.w.Begin(ctx, 0)
	err := e.awaitOpenStep()
	if err != nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		_ = e.endFailed(ctx, err)
	}
	e.w.End()
}

// awaitOpenStep waits until all ranks have published openStep, and compares their calls if this
// rank has made no later one.
func (e *Engine) awaitOpenStep() error {
	for r, b := range e.g.boards {
		if r == e.rank {
			continue
		}
		h := b.slot(e.openStep)
		ok, err := e.w.AtLeast(&h.step, e.openStep, b.left())
		if err != nil {
			return err
		}
		if !ok {
			return e.rankLeft([]int{r}, e.op, e.seq)
		}
		if e.openStep == e.step && h.step.Load() == e.step && h.sig != e.head.sig {
			return e.slotsDiffer(r, h)
		}
	}
	return nil
}
