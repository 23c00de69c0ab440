package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
)

// TestCanShrink provokes errors on rank 1 of two ranks and asks on rank 0, and for own on rank 1,
// whether Shrink is the way on. The calls of the other rank are part of the provocation.
func TestCanShrink(t *testing.T) {
	bytes := func(n int) tutti.Buffer { return tutti.Of(make([]uint8, n)) }
	type call func(ctx context.Context, c *tutti.Comm) error
	barrier := func(ctx context.Context, c *tutti.Comm) error { return c.Barrier(ctx) }
	soon := func(op call) call {
		return func(ctx context.Context, c *tutti.Comm) error {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			return op(ctx, c)
		}
	}
	cancelled := func(op call) call {
		return func(ctx context.Context, c *tutti.Comm) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return op(ctx, c)
		}
	}
	nothing := func(context.Context, *tutti.Comm) error { return nil }
	for name, x := range map[string]struct {
		cfg       tutti.Config
		rank0     call
		rank1     call
		kind      error // of rank 0's error
		want, own bool  // for rank 0 and for rank 1
	}{
		"closed by the other": {tutti.Config{}, barrier, func(_ context.Context, c *tutti.Comm) error { return c.Close() }, tutti.ErrRankLost, true, false},
		"Config.Timeout":      {tutti.Config{Timeout: 20 * time.Millisecond}, barrier, nothing, tutti.ErrTimeout, true, false},
		"deadline": {tutti.Config{}, barrier, soon(func(ctx context.Context, c *tutti.Comm) error {
			return c.Send(ctx, 0, bytes(1), 5)
		}), tutti.ErrTimeout, true, true},
		"cancelled": {tutti.Config{}, barrier, cancelled(barrier), tutti.ErrAborted, true, false},
		"Abort": {tutti.Config{}, barrier, func(_ context.Context, c *tutti.Comm) error {
			c.Abort(nil)
			return c.Err()
		}, tutti.ErrRevoked, true, true},
		"Shrink": {tutti.Config{ShrinkTimeout: 10 * time.Millisecond}, barrier, func(ctx context.Context, c *tutti.Comm) error {
			next, _, err := c.Shrink(ctx)
			return errors.Join(err, next.Close(), c.Err())
		}, tutti.ErrRevoked, true, true},
		"mismatch": {tutti.Config{}, barrier, func(ctx context.Context, c *tutti.Comm) error {
			return c.AllReduce(ctx, bytes(3), tutti.Max)
		}, tutti.ErrMismatch, false, false},
		"cycle": {tutti.Config{Timeout: 20 * time.Millisecond}, func(ctx context.Context, c *tutti.Comm) error {
			return c.Send(ctx, 1, bytes(1), 5)
		}, func(ctx context.Context, c *tutti.Comm) error {
			return c.Send(ctx, 0, bytes(1), 5)
		}, tutti.ErrTimeout, false, false},
		"invalid": {tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error { return c.Broadcast(ctx, bytes(1), 9) }, nothing, tutti.ErrInvalid, false, false},
		"closed":  {tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error { return errors.Join(c.Close(), c.Barrier(ctx)) }, nothing, tutti.ErrClosed, false, false},
		"not received": {tutti.Config{}, soon(func(ctx context.Context, c *tutti.Comm) error {
			_, err := c.Recv(ctx, 1, bytes(1), 5)
			return err
		}), nothing, context.DeadlineExceeded, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			errs := each(t, local(t, 2, x.cfg), func(ctx context.Context, c *tutti.Comm) error {
				if c.Rank() == 0 {
					return x.rank0(ctx, c)
				}
				return x.rank1(ctx, c)
			})
			if !errors.Is(errs[0], x.kind) {
				t.Fatalf("rank 0 has another error: %v", errs[0])
			}
			if got := tutti.CanShrink(fmt.Errorf("step 3: %w", errs[0])); got != x.want {
				t.Errorf("rank 0: %t for %v", got, errs[0])
			}
			if got := tutti.CanShrink(errs[1]); got != x.own {
				t.Errorf("rank 1: %t for %v", got, errs[1])
			}
		})
	}
}

// TestCanShrinkAfterJoin ends the contexts of a Join that waits for another rank. Neither error has a
// Comm that could shrink.
func TestCanShrinkAfterJoin(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := tutti.Join(ctx, tutti.Config{Rank: 0, Size: 2, Addr: "127.0.0.1:0"})
	if !errors.Is(err, tutti.ErrTimeout) && !errors.Is(err, tutti.ErrInvalid) || tutti.CanShrink(err) {
		t.Errorf("can shrink: %t: %v", tutti.CanShrink(err), err)
	}
	if tutti.CanShrink(nil) || tutti.CanShrink(context.Canceled) {
		t.Error("it is true for errors of no Comm")
	}
}
