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

// countRanks returns the number of ranks of a Comm, and closes it.
func countRanks(ctx context.Context, c *tutti.Comm) (int, error) {
	n, err := tutti.AllReduceValue(ctx, c, 1, tutti.Sum)
	return n, errors.Join(err, c.Close())
}

// TestGrowByTwo admits two newcomers, of which one calls Join when the ranks wait for it. The ranks
// keep their numbers.
func TestGrowByTwo(t *testing.T) {
	opt := Options{Ranks: 3, Newcomers: []time.Duration{time.Minute, 0}, Seed: 1}
	var late []int
	res := Run(t, opt, func(ctx context.Context, c *tutti.Comm) error {
		if c.Info().Late {
			late = append(late, c.Rank())
		} else {
			next, err := c.Grow(ctx, 2)
			if err != nil {
				return err
			}
			if next.Rank() != c.Rank() {
				return fmt.Errorf("rank %d is rank %d now", c.Rank(), next.Rank())
			}
			c = next
		}
		if n, err := countRanks(ctx, c); err != nil || n != 5 {
			return fmt.Errorf("there are %d ranks: %w", n, err)
		}
		return nil
	})
	if err := errors.Join(res.Errs...); err != nil {
		t.Error(err)
	}
	if slices.Sort(late); !slices.Equal(late, []int{3, 4}) || res.Elapsed < time.Minute {
		t.Errorf("after %v the newcomers are the ranks %v", res.Elapsed, late)
	}
}

// TestNewcomerDies ends a newcomer at each message that it sends, by each kind of death. The ranks
// grow by the other newcomer, or by none if the dead one had the first ticket.
func TestNewcomerDies(t *testing.T) {
	const ranks = 3
	sizes := make(map[int]int) // runs by number of ranks
	program := func(ctx context.Context, c *tutti.Comm) error {
		if !c.Info().Late {
			next, err := c.Grow(ctx, 1)
			if err != nil {
				return err
			}
			c = next
		}
		n, err := tutti.AllReduceValue(ctx, c, 1, tutti.Sum)
		if errors.Is(err, tutti.ErrRankLost) { // the newcomer died in the new Comm
			if c, _, err = c.Shrink(ctx); err == nil {
				n, err = tutti.AllReduceValue(ctx, c, 1, tutti.Sum)
			}
		}
		if err == nil && c.Rank() == 0 {
			sizes[n]++
		}
		return errors.Join(err, c.Close())
	}
	for _, kind := range []Kind{Crash, Vanish} {
		opt := Options{Ranks: ranks, Newcomers: []time.Duration{0, time.Second}, Seed: 1}
		for message := range Run(t, opt, program).Messages[ranks] {
			opt.Faults = []Fault{{Kind: kind, Rank: ranks, Message: message}}
			res := Run(t, opt, program)
			for r, err := range res.Errs {
				if !res.Dead[r] && err != nil {
					t.Errorf("%v at message %d: rank %d: %v", kind, message, r, err)
				}
			}
		}
	}
	if sizes[ranks] == 0 || sizes[ranks+1] == 0 {
		t.Errorf("runs by number of ranks: %v", sizes)
	}
}

// TestHostLostInGrow ends the host of a rank at each message that it sends in Grow. No other rank is
// excluded, although the others detect the loss only after Config.ShrinkTimeout.
func TestHostLostInGrow(t *testing.T) {
	const ranks = 4
	for lost := range ranks {
		for message := range 40 {
			opt := Options{Ranks: ranks, Newcomers: []time.Duration{0}, Faults: []Fault{{Kind: Vanish, Rank: lost, Message: message}}}
			l := &sumProgram{steps: 6}
			l.begin()
			res, err := Simulate(opt, l.main)
			if err != nil {
				t.Fatal(err)
			}
			if !res.Fired[0] {
				if message < 10 {
					t.Errorf("rank %d sent only %d messages", lost, message)
				}
				break
			}
			for r, err := range res.Errs {
				if !res.Dead[r] && err != nil {
					t.Errorf("rank %d vanishes at message %d: rank %d: %v", lost, message, r, err)
				}
			}
			if l.finished < ranks-1 {
				t.Errorf("rank %d vanishes at message %d: only %d have the sum", lost, message, l.finished)
			}
		}
	}
}

// TestNewcomerCutOff separates a newcomer from the store when it is admitted. Its Join ends after
// Config.Timeout, although its context has no deadline.
func TestNewcomerCutOff(t *testing.T) {
	const ranks = 2
	program := func(ctx context.Context, c *tutti.Comm) (err error) {
		if !c.Info().Late {
			if c, err = c.Grow(ctx, 1); err != nil {
				return err
			}
		}
		_, err = countRanks(ctx, c)
		return err
	}
	opt := Options{Ranks: ranks, Newcomers: []time.Duration{0}, Timeout: time.Minute}
	timeouts := 0
	for message := range Run(t, opt, program).Messages[ranks] {
		opt.Faults = []Fault{{Kind: OneWay, Rank: ranks, Message: message}}
		if res := Run(t, opt, program); errors.Is(res.Errs[ranks], tutti.ErrTimeout) {
			timeouts++
		}
	}
	if timeouts == 0 {
		t.Error("Join has never timed out")
	}
}

// TestGrowRefused calls Grow where it fails. Afterwards the ranks can shrink, and a newcomer that was
// not admitted has no error.
func TestGrowRefused(t *testing.T) {
	shrinks := func(ctx context.Context, c *tutti.Comm) error {
		next, _, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		if n, err := countRanks(ctx, next); err != nil || n != 3 {
			return fmt.Errorf("%d ranks are left: %w", n, err)
		}
		return nil
	}
	for name, c := range map[string]struct {
		newcomers int
		grow      func(ctx context.Context, c *tutti.Comm) error
		want      error
	}{
		"nobody comes": {0, func(ctx context.Context, c *tutti.Comm) error {
			_, err := c.Grow(ctx, 1)
			return err
		}, tutti.ErrTimeout},
		"only one comes": {1, func(ctx context.Context, c *tutti.Comm) error {
			_, err := c.Grow(ctx, 2)
			return err
		}, tutti.ErrTimeout},
		"ranks disagree": {2, func(ctx context.Context, c *tutti.Comm) error {
			_, err := c.Grow(ctx, 1+c.Rank()%2)
			return err
		}, tutti.ErrMismatch},
		"negative": {1, func(ctx context.Context, c *tutti.Comm) error {
			_, err := c.Grow(ctx, -1)
			return err
		}, tutti.ErrInvalid},
		"a group": {1, func(ctx context.Context, c *tutti.Comm) error {
			sub, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			_, err = sub.Grow(ctx, 1)
			return errors.Join(err, c.Barrier(ctx), sub.Close()) // no rank may shrink before
		}, tutti.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			opt := Options{Ranks: 3, Newcomers: make([]time.Duration, c.newcomers), Seed: 1, Timeout: time.Minute}
			res := Run(t, opt, func(ctx context.Context, comm *tutti.Comm) error {
				if err := c.grow(ctx, comm); !errors.Is(err, c.want) {
					return fmt.Errorf("got %w, want %w", err, c.want)
				}
				return shrinks(ctx, comm)
			})
			if err := errors.Join(res.Errs...); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGrowByNobody checks that Grow by zero returns the same Comm if no process waits.
func TestGrowByNobody(t *testing.T) {
	res := Run(t, Options{Ranks: 2, Newcomers: []time.Duration{time.Hour}, Limit: 2 * time.Hour}, func(ctx context.Context, c *tutti.Comm) error {
		if next, err := c.Grow(ctx, 0); err != nil || next != c {
			return fmt.Errorf("another Comm: %w", err)
		}
		return nil
	})
	if err := errors.Join(res.Errs...); err != nil || res.Elapsed > time.Minute {
		t.Errorf("after %v: %v", res.Elapsed, err)
	}
}

// TestExploreGrow checks that Explore draws faults of newcomers too.
func TestExploreGrow(t *testing.T) {
	l := &sumProgram{steps: 6, pause: time.Millisecond}
	l.begin()
	hit := 0
	Explore(t, Options{Ranks: 3, Newcomers: []time.Duration{0}}, 40, l.main, func(res *Result) error {
		if res.Faults[0].Rank == 3 {
			hit++
		}
		return nil
	})
	if hit == 0 {
		t.Error("no fault hit the newcomer")
	}
}

// TestInvalidNewcomer checks the errors of Options.
func TestInvalidNewcomer(t *testing.T) {
	for _, opt := range []Options{
		{Ranks: 1, Newcomers: []time.Duration{-1}},
		{Ranks: 1, Newcomers: []time.Duration{0}, Faults: []Fault{{Kind: Crash, Rank: 2}}},
	} {
		if _, err := Simulate(opt, func(context.Context, *tutti.Comm) error { return nil }); err == nil {
			t.Errorf("%+v: no error", opt)
		}
	}
}
