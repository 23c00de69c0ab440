package bench

import (
	"context"
	"time"

	"github.com/tutti-go/tutti"
)

const (
	// aheadOnGPU is how many operations are started before the first is waited for
	// on GPUs, if nothing else is said: they have a queue of their own, which
	// programs keep filled, and so does nccl-tests.
	aheadOnGPU = 256
	// aheadLeast is how many those are even if they take long.
	aheadLeast = 4
)

// ahead is how many operations are started before the first is waited for, at most.
func (p *Plan) ahead() int {
	switch {
	case p.Ahead > 0:
		return p.Ahead
	case p.Engine == NCCL:
		return aheadOnGPU
	}
	return 1
}

// window is how many operations of a point are started before the first is waited
// for, on all ranks the same. Each is how long one takes, about, on this rank.
func (r *runner) window(ctx context.Context, s *spec, each time.Duration) (int, error) {
	most := r.plan.ahead()
	if most == 1 || s.elems == 0 || s.op.name == "sendrecv" {
		return 1, nil // of barriers one ends before the next begins; messages have no order
	}
	if all := r.plan.Iters; all > 0 {
		windows := (all + most - 1) / most
		return (all + windows - 1) / windows, nil
	}
	n := []int32{int32(min(max(int(r.plan.Budget/(2*blocks)/max(each, 1)), aheadLeast), most))}
	err := r.comm.Broadcast(ctx, tutti.Of(n), 0)
	return int(n[0]), err
}

// started returns what starts an operation, or a batch of them, so many times and
// waits for the last.
func (s *spec) started(c *tutti.Comm, all []sides, times int) func(ctx context.Context) error {
	b := c.Batch()
	for _, on := range all {
		s.add(c, b, on)
	}
	return func(ctx context.Context) error {
		var last tutti.Work
		for range times {
			var err error
			if last, err = b.Start(ctx); err != nil {
				return err
			}
		}
		return last.Wait(ctx)
	}
}
