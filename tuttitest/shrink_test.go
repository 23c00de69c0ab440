package tuttitest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
)

// addAndShrink adds until an operation fails, then shrinks and adds once more. It
// returns the number of remaining ranks.
func addAndShrink(ctx context.Context, c *tutti.Comm) (int, error) {
	var err error
	for err == nil {
		_, err = tutti.AllReduceValue(ctx, c, 1, tutti.Sum)
	}
	next, _, err := c.Shrink(ctx)
	if err != nil {
		return 0, err
	}
	n, err := tutti.AllReduceValue(ctx, next, 1, tutti.Sum)
	return n, errors.Join(err, next.Close())
}

// TestPartition checks that only the side of a partition that reaches the store
// continues. The ranks of the other side are excluded if the partition ends, and
// otherwise cannot agree. No rank continues if no rank reaches the store.
func TestPartition(t *testing.T) {
	const ranks = 6
	for _, c := range []struct {
		kind  Kind
		side  []int
		lasts time.Duration
		left  int
		cause error
	}{
		{Partition, []int{0, 1}, 0, 4, tutti.ErrTimeout},
		{Partition, []int{4, 5, 2, 3}, 0, 2, tutti.ErrTimeout},
		{Partition, []int{5, 0, 2}, 80 * time.Second, 3, tutti.ErrExcluded},
		{OneWay, []int{1, 2, 3, 4, 5}, 0, 1, tutti.ErrTimeout},
	} {
		t.Run(fmt.Sprint(c.kind, c.side, c.lasts), func(t *testing.T) {
			opt := Options{Ranks: ranks, Seed: 1, Timeout: time.Minute, Faults: []Fault{
				{Kind: c.kind, Rank: c.side[0], Message: 20, Peers: c.side[1:], For: c.lasts},
			}}
			res := Run(t, opt, func(ctx context.Context, comm *tutti.Comm) error {
				cut := slices.Contains(c.side, comm.Rank())
				n, err := addAndShrink(ctx, comm)
				switch {
				case !cut && (err != nil || n != c.left):
					return fmt.Errorf("%d ranks went on: %w", n, err)
				case cut && !errors.Is(err, c.cause):
					return fmt.Errorf("%d ranks went on on the other side: %w", n, err)
				}
				return nil
			})
			if err := errors.Join(res.Errs...); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("nobody reaches the store", func(t *testing.T) {
		opt := Options{Ranks: ranks, Seed: 1, Timeout: time.Minute, Faults: []Fault{
			{Kind: Partition, Rank: 0, Message: 5, Peers: []int{1, 2, 3, 4, 5}}, {Kind: Crash, Rank: 3, Message: 20},
		}}
		res := Run(t, opt, func(ctx context.Context, c *tutti.Comm) error {
			if n, err := addAndShrink(ctx, c); !errors.Is(err, tutti.ErrTimeout) {
				return fmt.Errorf("%d ranks went on without the store: %w", n, err)
			}
			return nil
		})
		for r, err := range res.Errs {
			if !res.Dead[r] && err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	})
}

// TestDeathInShrink checks that ranks that die while the others shrink are
// excluded, at any moment, and are waited for only once: a rank dies at each
// message that it sends meanwhile. The same holds for rank 0 of the new Comm.
func TestDeathInShrink(t *testing.T) {
	const ranks, first, shrinkTimeout = 4, 2, 10 * time.Second
	body := func(ctx context.Context, c *tutti.Comm) error {
		n, err := addAndShrink(ctx, c)
		if err == nil && (n == ranks-1 || n == ranks-2) || errors.Is(err, tutti.ErrRankLost) {
			return nil // in the new Comm, if it was made before the death
		}
		return fmt.Errorf("%d ranks: %w", n, err)
	}
	for _, second := range []int{0, 1} {
		opt := Options{Ranks: ranks, Seed: 3, ShrinkTimeout: shrinkTimeout, Faults: []Fault{{Kind: Crash, Rank: first, Message: 9}}}
		before := Run(t, opt, body)
		sent := before.all.SentThen[second]
		if before.Messages[second] <= sent {
			t.Fatal("it sent nothing afterwards")
		}
		waited := false
		for ; sent < before.Messages[second]; sent++ {
			opt.Faults = append(opt.Faults[:1:1], Fault{Kind: Crash, Rank: second, Message: sent})
			res := Run(t, opt, body)
			for r, err := range res.Errs {
				if !res.Dead[r] && err != nil {
					t.Errorf("rank %d dies at message %d: rank %d: %v", second, sent, r, err)
				}
			}
			if more := res.Elapsed - before.Elapsed; more > shrinkTimeout*3/2 {
				t.Errorf("rank %d dies at message %d, and is waited for %v", second, sent, more)
			} else {
				waited = waited || more > shrinkTimeout/2
			}
		}
		if !waited {
			t.Errorf("rank %d was never waited for", second)
		}
	}
}
