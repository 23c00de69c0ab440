package gpu

import (
	"context"
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// maxKnown bounds the number of remembered signatures. A program with more kinds of operations
// pays for a goroutine in each operation of a further kind.
const maxKnown = 1024

// noteKnown remembers that an operation with a signature has succeeded. The caller launches
// operations, or holds e.pipeline.mu while another goroutine may.
func (e *Engine) noteKnown(signature uint64) {
	if signature != 0 && len(e.known) < maxKnown && !e.known[signature] {
		e.known[signature] = true
	}
}

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
