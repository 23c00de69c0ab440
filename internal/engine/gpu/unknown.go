package gpu

import (
	"context"
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// maxKnown bounds how many signs are remembered. A program with more kinds of operations
// than that pays for a goroutine in each further one.
const maxKnown = 1024

// runUnknown is Run for an operation that differs from all before it. NCCL may allocate
// memory and connect to other ranks in such a call, and the driver may then wait for streams
// that the caller holds back: the call may never return. So it has a goroutine of its own,
// and the caller is told of a timeout without it.
func (e *Engine) runUnknown(ctx context.Context, seq uint64, calls []engine.Call, sign uint64) error {
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
		limit := time.NewTimer(engine.LetGo)
		defer limit.Stop()
		select {
		case err = <-done:
		case <-limit.C:
			e.abandoned.Store(true)
			return e.failure()
		}
	}
	if err == nil && len(e.known) < maxKnown {
		e.known[sign] = true
	}
	return err
}
