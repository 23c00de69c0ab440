package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/tutti-go/tutti"
)

// loop is the timed loop: it appends the time of each of n iterations on this rank, in nanoseconds.
// All ranks call it together. After the first error it returns no times.
func (o *op) loop(ctx context.Context, c *tutti.Comm, n int, times []int64, run func(context.Context) error) ([]int64, error) {
	if err := c.Barrier(ctx); err != nil {
		return nil, err
	}
	// An operation that synchronizes all ranks is timed back to back. Other
	// operations would overlap, and are timed separately.
	separate := !o.verb.Synchronizes()
	last := time.Now()
	for range n {
		if separate {
			if err := c.Barrier(ctx); err != nil {
				return nil, err
			}
			last = time.Now()
		}
		if err := run(ctx); err != nil {
			return nil, err
		}
		now := time.Now()
		times = append(times, int64(now.Sub(last)))
		last = now
	}
	return times, nil
}

// A Loop is the timed loop of a run, for comparisons with other implementations. It
// checks no results.
type Loop struct {
	comm *tutti.Comm
	x, y *Memory
}

// NewLoop returns a Loop on float32 elements, in two buffers that the caller owns.
func NewLoop(c *tutti.Comm, x, y *Memory) *Loop { return &Loop{c, x, y} }

// Time returns the times of operations of a size (see Result) on this rank, in nanoseconds: the
// means of ahead operations in flight. All ranks call it with the same arguments, not concurrently.
// It returns an error for an unknown operation or the first operation that fails.
func (l *Loop) Time(ctx context.Context, name string, bytes, times, ahead int) ([]int64, error) {
	o, n := opNamed(name), l.comm.Size()
	if o == nil || ahead < 1 {
		return nil, fmt.Errorf("%q, %d ahead: there is no such loop", name, ahead)
	}
	s := &spec{op: o, dtype: tutti.Float32Type, reduce: none, elems: bytes / tutti.Float32Type.Size()}
	if o.reduces() {
		s.reduce = "sum"
	}
	if o.divided() {
		s.part = s.elems / n
	}
	all := []operands{s.layout(l.x.slice(0, s.elems), l.y.slice(0, s.elems), l.comm.Rank(), false)}
	run := s.iteration(l.comm, all)
	if ahead > 1 {
		run = s.startAhead(l.comm, all, ahead)
	}
	took, err := o.loop(ctx, l.comm, times, nil, run)
	for i := range took {
		took[i] /= int64(ahead)
	}
	return took, err
}
