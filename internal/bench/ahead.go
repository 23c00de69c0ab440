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
	defaultAheadGPU = 256
	// aheadLeast is how many those are even if they take long.
	minAhead = 4
	// aheadFew is how many tell how long each takes among others.
	sampleAhead = 16
)

// ahead is how many operations are started before the first is waited for, at most.
func (p *Plan) ahead() int {
	switch {
	case p.Ahead > 0:
		return p.Ahead
	case p.Engine == NCCL:
		return defaultAheadGPU
	}
	return 1
}

// window is how many operations of a point are started before the first is waited
// for, on all ranks the same. Each is how long one takes by itself, about, on this rank.
func (r *runner) window(ctx context.Context, s *spec, each time.Duration, all []operands) (int, error) {
	most := r.plan.ahead()
	if most == 1 || s.elems == 0 || s.op.name == "sendrecv" {
		return 1, nil // of barriers one ends before the next begins; messages have no order
	}
	if all := r.plan.Iters; all > 0 {
		windows := (all + most - 1) / most
		return (all + windows - 1) / windows, nil
	}
	n, err := r.windowSize(ctx, each, minAhead, most)
	if few := min(n, sampleAhead); err == nil && few > minAhead {
		// Several take less than as many times one.
		run, begin := s.startAhead(r.comm, all, few), time.Now()
		if err = run(ctx); err == nil {
			n, err = r.windowSize(ctx, time.Since(begin)/time.Duration(few), few, most)
		}
	}
	return n, err
}

// fit is how many operations there are in a window, by the rank that takes longest.
func (r *runner) windowSize(ctx context.Context, each time.Duration, least, most int) (int, error) {
	longest, err := tutti.ReduceValue(ctx, r.comm, int64(each), tutti.Max)
	return min(max(int(int64(r.plan.Budget/(2*blocks))/max(longest, 1)), least), most), err
}

// started returns what starts an operation, or a batch of them, so many times and
// waits for the last.
func (s *spec) startAhead(c *tutti.Comm, all []operands, times int) func(ctx context.Context) error {
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
