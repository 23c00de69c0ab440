package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
)

// TestCloseReportsFailure makes rank 1 poison the Comm while rank 0 makes no call. Rank 0's Close
// returns the failure, and a second Close does not. Rank 1, whose call has returned it, closes
// without an error.
func TestCloseReportsFailure(t *testing.T) {
	comms := local(t, 2, tutti.Config{Timeout: 20 * time.Millisecond})
	if err := comms[1].Barrier(t.Context()); !errors.Is(err, tutti.ErrTimeout) {
		t.Fatal(err)
	}
	<-comms[0].Done()
	if err := comms[0].Close(); !errors.Is(err, tutti.ErrTimeout) || !strings.Contains(err.Error(), "Barrier #1 on rank 1") {
		t.Errorf("rank 0: %v", err)
	}
	for _, c := range comms {
		if err := c.Close(); err != nil {
			t.Errorf("rank %d: %v", c.Rank(), err)
		}
	}
}

// TestCloseReportsDroppedWork drops the Work of an operation that fails. Close returns its error.
func TestCloseReportsDroppedWork(t *testing.T) {
	c := local(t, 2, tutti.Config{Timeout: 20 * time.Millisecond})[0]
	if _, err := c.Batch().Barrier().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); !errors.Is(err, tutti.ErrTimeout) {
		t.Error(err)
	}
}

// TestCloseAfterOwnAbort closes a Comm that this rank itself has aborted, without an error.
func TestCloseAfterOwnAbort(t *testing.T) {
	c := local(t, 2, tutti.Config{})[0]
	c.Abort(nil)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// oneSided are operations that return on rank 0 before the other ranks have called them.
var oneSided = map[string]func(ctx context.Context, c *tutti.Comm, n int) error{
	"Broadcast": func(ctx context.Context, c *tutti.Comm, n int) error {
		return c.Broadcast(ctx, tutti.Of(make([]float32, n)), 0)
	},
	"Scatter": func(ctx context.Context, c *tutti.Comm, n int) error {
		return c.Scatter(ctx, tutti.Of(make([]float32, n)), tutti.Of(make([]float32, n*c.Size())), 0)
	},
	"Reduce": func(ctx context.Context, c *tutti.Comm, n int) error {
		return c.Reduce(ctx, tutti.Of(make([]float32, n)), tutti.Of(make([]float32, n)), tutti.Sum, c.Size()-1)
	},
	"Scan": func(ctx context.Context, c *tutti.Comm, n int) error {
		return c.Scan(ctx, tutti.Of(make([]float32, n)), tutti.Of(make([]float32, n)), tutti.Sum)
	},
	"Gather": func(ctx context.Context, c *tutti.Comm, n int) error {
		return c.Gather(ctx, tutti.Of(make([]float32, n*c.Size())), tutti.Of(make([]float32, n)), c.Size()-1)
	},
}

// TestCloseAwaitsOthers closes rank 0 after an operation that has returned there before the other
// ranks called it. They call it or another one when rank 0 is in Close; Close returns nil or the
// mismatch. Small data has returned on rank 0 before rank 1 makes a call.
func TestCloseAwaitsOthers(t *testing.T) {
	for name, op := range oneSided {
		for _, ranks := range []int{2, 3} {
			for _, wrong := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/%t", name, ranks, wrong), func(t *testing.T) {
					closing := make(chan struct{})
					errs := each(t, local(t, ranks, tutti.Config{}), func(ctx context.Context, c *tutti.Comm) error {
						if c.Rank() == 0 {
							err := op(ctx, c, 4)
							close(closing)
							return errors.Join(err, c.Close())
						}
						<-closing
						time.Sleep(5 * time.Millisecond) // usually long enough that rank 0 waits in Close
						if c.Rank() == 1 && wrong {
							return c.Barrier(ctx)
						}
						return op(ctx, c, 4)
					})
					for r, err := range errs {
						switch {
						case !wrong && err == nil, wrong && errors.Is(err, tutti.ErrMismatch):
						case wrong && r == 2 && err == nil: // its part may need rank 0 alone
						default:
							t.Errorf("rank %d: %v", r, err)
						}
					}
				})
			}
		}
	}
}

// TestCloseFindsClosed closes rank 0 after a Broadcast that rank 1 has not called when it closes.
func TestCloseFindsClosed(t *testing.T) {
	comms := local(t, 2, tutti.Config{})
	if err := comms[0].Broadcast(t.Context(), tutti.Of(make([]int32, 1)), 0); err != nil {
		t.Fatal(err)
	}
	if err := comms[1].Close(); err != nil {
		t.Fatal(err)
	}
	err := comms[0].Close()
	if !errors.Is(err, tutti.ErrRankLost) || !strings.Contains(err.Error(), "rank 1 has closed") || strings.Contains(err.Error(), "Shrink") || tutti.CanShrink(err) {
		t.Error(err)
	}
}

// TestCloseLimit closes the root of a Broadcast that the other rank never calls. Close gives up
// after some seconds, without an error.
func TestCloseLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 3 s")
	}
	t.Parallel()
	c := local(t, 2, tutti.Config{})[0]
	if err := c.Broadcast(t.Context(), tutti.Of(make([]int32, 1)), 0); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took < time.Second {
		t.Errorf("it has waited for %v only", took)
	}
}

// TestRunLocalReportsClose runs two Broadcasts with different roots, whose calls may both succeed.
// RunLocal returns the mismatch.
func TestRunLocalReportsClose(t *testing.T) {
	err := tutti.RunLocal(t.Context(), 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		return c.Broadcast(ctx, tutti.Of(make([]int32, 1)), c.Rank())
	})
	if !errors.Is(err, tutti.ErrMismatch) {
		t.Error(err)
	}
}

// BenchmarkClose closes 8 ranks after a Broadcast and reports the median of their last Close.
func BenchmarkClose(b *testing.B) {
	const ranks = 8
	var took []time.Duration
	for b.Loop() {
		comms, err := tutti.Local(ranks, tutti.Config{})
		if err != nil {
			b.Fatal(err)
		}
		slowest := make([]time.Duration, ranks)
		for r, err := range each(b, comms, func(ctx context.Context, c *tutti.Comm) error {
			if err := c.Broadcast(ctx, tutti.Of(make([]int32, 1)), 0); err != nil {
				return err
			}
			begin := time.Now()
			err := c.Close()
			slowest[c.Rank()] = time.Since(begin)
			return err
		}) {
			if err != nil {
				b.Errorf("rank %d: %v", r, err)
			}
		}
		took = append(took, slices.Max(slowest))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "us/Close")
}
