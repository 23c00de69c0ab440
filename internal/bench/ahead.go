package bench

import (
	"context"
	"time"

	"github.com/tutti-go/tutti"
)

const (
	// defaultAheadGPU is the default number of operations in flight on GPUs. A GPU
	// has a queue, which programs and nccl-tests keep filled.
	defaultAheadGPU = 256
	// minAhead is the least number of operations in flight, even if operations take
	// long.
	minAhead = 4
	// sampleAhead is the number of operations in flight when their time is
	// estimated.
	sampleAhead = 16
)

// ahead returns the largest number of operations in flight.
func (p *Plan) ahead() int {
	switch {
	case p.Ahead > 0:
		return p.Ahead
	case p.Engine == NCCL:
		return defaultAheadGPU
	}
	return 1
}

// window returns how many operations of a point are in flight, the same on all
// ranks. each is the approximate time of a single operation on this rank.
func (r *runner) window(ctx context.Context, s *spec, each time.Duration, all []operands) (int, error) {
	most := r.plan.ahead()
	if most == 1 || s.elems == 0 || s.op.name == "sendrecv" {
		return 1, nil // barriers run one after the other; messages are unordered
	}
	if all := r.plan.Iters; all > 0 {
		windows := (all + most - 1) / most
		return (all + windows - 1) / windows, nil
	}
	n, err := r.windowSize(ctx, each, minAhead, most)
	if few := min(n, sampleAhead); err == nil && few > minAhead {
		// Several operations in flight take less than the same number one by one.
		run, begin := s.startAhead(r.comm, all, few), time.Now()
		if err = run(ctx); err == nil {
			n, err = r.windowSize(ctx, time.Since(begin)/time.Duration(few), few, most)
		}
	}
	return n, err
}

// windowSize returns the number of operations in a window. The slowest rank
// determines it.
func (r *runner) windowSize(ctx context.Context, each time.Duration, least, most int) (int, error) {
	longest, err := tutti.AllReduceValue(ctx, r.comm, int64(each), tutti.Max)
	return min(max(int(int64(r.plan.Budget/(2*blocks))/max(longest, 1)), least), most), err
}

// startAhead returns a function that starts the given number of operations, or batches, and waits
// for the last. If one cannot be started, the function returns its error without waiting for the
// operations before it.
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
