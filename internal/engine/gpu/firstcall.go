package gpu

import (
	"context"
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// runFirst is Run for an operation that differs from all earlier ones. NCCL may allocate memory
// and connect to other ranks in such a call, and the driver may then wait for streams that the
// caller holds back. The call may never return. So it runs on a goroutine of its own, and the
// caller can return on a timeout.
func (e *Engine) runFirst(ctx context.Context, seq uint64, calls []engine.Call, signature uint64) error {
	own := slices.Clone(calls)
	for i := range own {
		own[i].DstParts, own[i].SrcParts = slices.Clone(own[i].DstParts), slices.Clone(own[i].SrcParts)
	}
	done := make(chan error, 1)
	go func() {
		done <- e.runDevice(ctx, seq, own)
	}()
	var err error
	select {
	case err = <-done:
	case <-e.Failed():
		limit := time.NewTimer(engine.AbandonAfter)
		defer limit.Stop()
		select {
		case err = <-done:
		case <-limit.C:
			e.abandoned.Store(true)
			return e.failure()
		}
	}
	if err == nil {
		e.noteKnown(signature)
	}
	return err
}
