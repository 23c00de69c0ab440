package tuttitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/clock"
	"github.com/tutti-go/tutti/internal/race"
	"github.com/tutti-go/tutti/internal/sim"
)

// program uses most of the API of a Comm and checks the results. It runs on every
// rank, and returns the first error or wrong result. The task that waits for w2
// sets err, which is read after join.
func program(ctx context.Context, c *tutti.Comm) error {
	n := c.Size()
	for round := range 2 {
		v, err := tutti.AllReduceValue(ctx, c, c.Rank()+round, tutti.Sum)
		if err != nil {
			return err
		}
		if want := n*(n-1)/2 + n*round; v != want {
			return fmt.Errorf("the sum is %d, want %d", v, want)
		}
	}

	// Two batches in flight at the same time, with messages around a ring.
	a, b, in := make([]int32, 100), []float32{2}, []int64{-1}
	for i := range a {
		a[i] = int32(i)
	}
	w1, err := c.Batch().AllReduce(tutti.Of(a), tutti.Max).Barrier().Start(ctx)
	if err != nil {
		return err
	}
	w2, err := c.Batch().AllReduce(tutti.Of(b), tutti.Avg).
		Send((c.Rank()+1)%n, tutti.Of([]int64{int64(c.Rank())}), 5).Recv((c.Rank()+n-1)%n, tutti.Of(in), 5).Start(ctx)
	if err != nil {
		return err
	}
	join := clock.Go(ctx, func() { err = w2.Wait(ctx) })
	if err := w1.Wait(ctx); err != nil {
		return err
	}
	if join(); err != nil {
		return err
	}
	if a[99] != 99 || b[0] != 2 || in[0] != int64((c.Rank()+n-1)%n) {
		return fmt.Errorf("the batches left %v, %v and %v", a[99], b, in)
	}

	sub, err := c.Split(ctx, c.Rank()%2, -c.Rank())
	if err != nil {
		return err
	}
	all, err := tutti.AllGatherSlices(ctx, sub, slices.Repeat([]uint8{uint8(sub.Rank())}, c.Rank()))
	if err != nil {
		return errors.Join(err, sub.Close())
	}
	for r, s := range all {
		if !bytes.Equal(s, slices.Repeat([]uint8{uint8(r)}, len(s))) {
			return fmt.Errorf("rank %d's slice is %v", r, s)
		}
	}
	return errors.Join(c.Barrier(ctx), sub.Close())
}

// TestReplay checks that a run of the whole public API succeeds and can be
// replayed.
func TestReplay(t *testing.T) {
	for seed := range uint64(5) {
		var first *Result
		for range 3 {
			res := Run(t, Options{Ranks: 6, Seed: seed}, program)
			if err := errors.Join(res.Errs...); err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = res
			}
			if res.Hash != first.Hash || res.Elapsed != first.Elapsed {
				t.Fatalf("seed %d: %+v, and then %+v", seed, first, res)
			}
		}
	}
}

// TestExplore checks that with any fault each rank has a right result or an error
// that names the fault, and that a seed can be replayed.
func TestExplore(t *testing.T) {
	kinds := make(map[Kind]int)
	hurt, seeds := 0, 100
	if testing.Short() || race.Enabled {
		seeds = 25
	}
	Explore(t, Options{Ranks: 5, Timeout: time.Minute}, seeds, program, func(res *Result) error {
		kinds[res.Faults[0].Kind]++
		for r, err := range res.Errs {
			if res.Dead[r] || err == nil {
				continue
			}
			hurt++
			e := (*tutti.Error)(nil)
			lost := errors.Is(err, tutti.ErrRankLost) || errors.Is(err, tutti.ErrTimeout)
			// A group that was being made during the fault fails, even if all its
			// members are alive.
			unmade := errors.Is(err, tutti.ErrAborted) && strings.Contains(err.Error(), "being made of has failed: a rank was lost")
			if !errors.As(err, &e) || !lost && !unmade {
				return fmt.Errorf("rank %d: %w", r, err)
			}
		}
		if res.Seed%10 != 0 {
			return nil
		}
		again := Run(t, Options{Ranks: 5, Timeout: time.Minute, Seed: res.Seed, Faults: res.Faults}, program)
		if again.Hash != res.Hash || again.Elapsed != res.Elapsed {
			return fmt.Errorf("%x after %v, and then %x after %v", res.Hash, res.Elapsed, again.Hash, again.Elapsed)
		}
		return nil
	})
	if len(kinds) != int(sim.LastKind) || hurt == 0 {
		t.Errorf("only these happened: %v; %d ranks were hurt", kinds, hurt)
	}
}

// TestExploreKinds limits Explore to some kinds of fault: it draws each of them, and no other.
func TestExploreKinds(t *testing.T) {
	for _, kinds := range [][]Kind{{Crash}, {Stall, OneWay}} {
		drawn := make(map[Kind]int)
		Explore(t, Options{Ranks: 3, Timeout: time.Minute}, 20, program, func(res *Result) error {
			drawn[res.Faults[0].Kind]++
			return nil
		}, kinds...)
		for _, k := range kinds {
			if drawn[k] == 0 {
				t.Errorf("%v: no %v among %v", kinds, k, drawn)
			}
		}
		if len(drawn) != len(kinds) {
			t.Errorf("%v: drew %v", kinds, drawn)
		}
	}
	for _, k := range []Kind{0, OneWay + 1} {
		if err := checkKinds([]Kind{Crash, k}); err == nil {
			t.Errorf("%d is taken for a kind", k)
		}
	}
}

// TestDeadline checks that a deadline in virtual time ends an operation, and an
// operation that is queued behind it.
func TestDeadline(t *testing.T) {
	began := time.Now()
	res := Run(t, Options{Ranks: 3}, func(ctx context.Context, c *tutti.Comm) error {
		start := clock.Now(ctx)
		if c.Rank() == 2 {
			if err := clock.Sleep(ctx, time.Hour/2); err != nil {
				return err
			}
			return c.Barrier(ctx)
		}
		first, err := c.Batch().Barrier().Start(ctx)
		if err != nil {
			return err
		}
		short, cancel := clock.WithTimeout(ctx, time.Minute)
		defer cancel()
		second, err := c.Batch().Barrier().Start(short)
		if err != nil {
			return err
		}
		if err := errors.Join(first.Wait(ctx), second.Wait(ctx)); clock.Now(ctx).Sub(start) != time.Minute || !errors.Is(err, tutti.ErrTimeout) {
			return fmt.Errorf("after %v: %w", clock.Now(ctx).Sub(start), err)
		}
		return c.Err()
	})
	for r, err := range res.Errs {
		if !errors.Is(err, tutti.ErrTimeout) || !strings.Contains(err.Error(), "deadline has passed while the operation waited") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if res.Elapsed < time.Hour/2 || time.Since(began) > time.Hour/4 {
		t.Errorf("%v of virtual time took %v", res.Elapsed, time.Since(began))
	}
}

// TestMismatch checks that ranks that call different operations get ErrMismatch.
func TestMismatch(t *testing.T) {
	res := Run(t, Options{Ranks: 4}, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 3 {
			return c.AllReduce(ctx, tutti.Of([]int32{0}), tutti.Sum)
		}
		return c.Barrier(ctx)
	})
	for r, err := range res.Errs {
		if !errors.Is(err, tutti.ErrMismatch) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestWrong checks the errors for a fault that cannot happen and for ranks that
// hang.
func TestWrong(t *testing.T) {
	never := Options{Ranks: 2, Faults: []Fault{{Kind: Crash, Rank: 1, Message: 1000}}}
	res, err := Simulate(never, program)
	if err != nil || res.Fired[0] {
		t.Errorf("a crash at a message that is never sent: %v, %v", res, err)
	}
	if _, err := Simulate(Options{Ranks: 2, Faults: []Fault{{Kind: Crash, Rank: 2}}}, program); err == nil {
		t.Error("a crash of a rank that is not there")
	}
	_, err = Simulate(Options{Ranks: 2, Timeout: -1}, func(ctx context.Context, c *tutti.Comm) error {
		_, err := c.Recv(ctx, 1-c.Rank(), tutti.Of([]int32{0}), 0)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "ranks 0, 1 hang") {
		t.Errorf("two ranks that wait for each other: %v", err)
	}
}
