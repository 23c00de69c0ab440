package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-go/tutti"
)

// TestBatch starts many batches, of small and large operations and messages,
// before it waits for any.
func TestBatch(t *testing.T) {
	const outstanding = 50
	comms := local(t, 3, tutti.Config{})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		n := c.Size()
		next, prev := (c.Rank()+1)%n, (c.Rank()+n-1)%n
		type round struct {
			small, large, all, in []int64
			work                  tutti.Work
		}
		rounds := make([]round, outstanding)
		for i := range rounds {
			r := &rounds[i]
			*r = round{small: make([]int64, 3), large: make([]int64, 5000), all: make([]int64, n), in: make([]int64, 1)}
			for j := range r.small {
				r.small[j] = int64(i + c.Rank())
			}
			for j := range r.large {
				r.large[j] = int64(i * c.Rank())
			}
			var err error
			r.work, err = c.Batch().AllReduce(tutti.Of(r.small), tutti.Sum).AllReduce(tutti.Of(r.large), tutti.Max).
				Send(next, tutti.Of([]int64{int64(1000*i + c.Rank())}), 7).Recv(prev, tutti.Of(r.in), 7).
				AllGather(tutti.Of(r.all), tutti.Of([]int64{int64(i + 10*c.Rank())})).Start(ctx)
			if err != nil {
				return err
			}
		}
		for i := outstanding - 1; i >= 0; i-- {
			r := &rounds[i]
			if err := r.work.Wait(ctx); err != nil {
				return err
			}
			got := []int64{r.small[2], r.large[4999], r.all[2], r.in[0]}
			want := []int64{int64(3*i + 3), int64(2 * i), int64(i + 20), int64(1000*i + prev)}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("round %d: %v, want %v", i, got, want)
			}
		}
		return c.Barrier(ctx)
	})
}

// TestBatchReuse starts one Batch many times, and from many goroutines other
// Batches and blocking calls that look alike on all ranks.
func TestBatchReuse(t *testing.T) {
	comms := local(t, 4, tutti.Config{})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		x := []float64{1}
		b := c.Batch().AllReduce(tutti.Of(x), tutti.Sum)
		for range 3 {
			w, err := b.Start(ctx)
			if err != nil {
				return err
			}
			if err := w.Wait(ctx); err != nil {
				return err
			}
		}
		if x[0] != 64 {
			return fmt.Errorf("%v", x)
		}
		var many sync.WaitGroup
		var failed error
		var once sync.Once
		for range 8 {
			many.Go(func() {
				for i := range 50 {
					v := []int32{1, 2}
					var err error
					if i%2 == 0 {
						err = c.AllReduce(ctx, tutti.Of(v), tutti.Sum)
					} else {
						var w tutti.Work
						if w, err = c.Batch().AllReduce(tutti.Of(v), tutti.Sum).Start(ctx); err == nil {
							err = w.Wait(ctx)
						}
					}
					if err == nil && (v[0] != 4 || v[1] != 8) {
						err = fmt.Errorf("%v", v)
					}
					if err != nil {
						once.Do(func() { failed = err })
						return
					}
				}
			})
		}
		many.Wait()
		return failed
	})
}

// TestGiveUpWait gives up waiting for an operation, which goes on.
func TestGiveUpWait(t *testing.T) {
	comms := local(t, 2, tutti.Config{})
	gaveUp := make(chan struct{})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		x := []int{c.Rank() + 1}
		if c.Rank() == 1 {
			<-gaveUp
			return c.AllReduce(ctx, tutti.Of(x), tutti.Sum)
		}
		w, err := c.Batch().AllReduce(tutti.Of(x), tutti.Sum).Start(ctx)
		if err != nil {
			return err
		}
		if w.Over() {
			return errors.New("the Work is over before the other rank began")
		}
		short, cancel := context.WithCancel(ctx)
		cancel()
		if err := w.Wait(short); !errors.Is(err, context.Canceled) || errors.Is(err, tutti.ErrAborted) {
			return fmt.Errorf("giving up: %w", err)
		}
		if err := c.Err(); err != nil {
			return fmt.Errorf("giving up did harm: %w", err)
		}
		close(gaveUp)
		if err := w.Wait(ctx); err != nil || x[0] != 3 {
			return fmt.Errorf("%v, %w", x, err)
		}
		return nil
	})
	if err := (tutti.Work{}).Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestQueuedDeadline ends the context of an operation that waits behind
// another.
func TestQueuedDeadline(t *testing.T) {
	comms := local(t, 2, tutti.Config{})
	errs := each(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 1 {
			<-c.Done()
			return c.Err()
		}
		first, err := c.Batch().Barrier().Start(ctx)
		if err != nil {
			return err
		}
		late, cancel := context.WithCancel(ctx)
		defer cancel()
		second, err := c.Batch().Broadcast(tutti.Of([]int{1}), 0).Start(late)
		if err != nil {
			return err
		}
		cancel()
		if err := first.Wait(ctx); err == nil {
			return errors.New("the first operation went well")
		}
		return second.Wait(ctx)
	})
	for r, err := range errs {
		if !errors.Is(err, tutti.ErrAborted) || !strings.Contains(err.Error(), "Broadcast#2") ||
			errors.Is(err, context.Canceled) != (r == 0) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestOrder has two ranks start the same operations in different orders.
func TestOrder(t *testing.T) {
	comms := local(t, 2, tutti.Config{})
	errs := each(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		a := c.Batch().AllReduce(tutti.Of([]int{1}), tutti.Sum).Named("a")
		b := c.Batch().AllReduce(tutti.Of([]int{2}), tutti.Sum).Named("b")
		if c.Rank() == 1 {
			a, b = b, a
		}
		w1, err := a.Start(ctx)
		if err != nil {
			return err
		}
		w2, err := b.Start(ctx)
		if err != nil {
			return err
		}
		return errors.Join(w1.Wait(ctx), w2.Wait(ctx))
	})
	for r, err := range errs {
		if !errors.Is(err, tutti.ErrMismatch) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestMessagesOutsideTheOrder exchanges messages while a collective waits.
func TestMessagesOutsideTheOrder(t *testing.T) {
	comms := local(t, 2, tutti.Config{})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		x := []int{c.Rank()}
		if c.Rank() == 0 {
			w, err := c.Batch().Barrier().Start(ctx)
			if err != nil {
				return err
			}
			if err := c.Recv(ctx, 1, tutti.Of(x), 3); err != nil || x[0] != 1 {
				return fmt.Errorf("%v, %w", x, err)
			}
			return w.Wait(ctx)
		}
		if err := c.Send(ctx, 0, tutti.Of(x), 3); err != nil {
			return err
		}
		return c.Barrier(ctx)
	})
}

// TestKeptWork waits once more for messages that were delivered, after others have
// failed that were started later.
func TestKeptWork(t *testing.T) {
	c := local(t, 1, tutti.Config{})[0]
	x := []int{1}
	b := c.Batch().Send(0, tutti.Of(x), 1).Recv(0, tutti.Of([]int{0}), 1)
	var works [2]tutti.Work
	for i := range works {
		var err error
		if works[i], err = b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := works[i].Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	late, err := b.Reset().Recv(0, tutti.Of(x), 2).Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Abort(nil)
	if err := late.Wait(t.Context()); !errors.Is(err, tutti.ErrAborted) {
		t.Errorf("what failed: %v", err)
	}
	for _, w := range works {
		if err := w.Wait(t.Context()); err != nil {
			t.Errorf("what had been delivered: %v", err)
		}
	}
}

func TestMessageErrors(t *testing.T) {
	comms := local(t, 2, tutti.Config{})
	errs := each(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 0 {
			return c.Send(ctx, 1, tutti.Of(make([]float32, 3)), 5)
		}
		return c.Recv(ctx, 0, tutti.Of(make([]float32, 4)), 5)
	})
	for r, err := range errs {
		if !errors.Is(err, tutti.ErrMismatch) || !strings.Contains(err.Error(), "receives 4 x float32 with tag 5, rank 0 sends 3 x float32") {
			t.Errorf("rank %d: %v", r, err)
		}
	}

	comms = local(t, 2, tutti.Config{})
	errs = each(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 0 {
			return c.Send(ctx, 1, tutti.Of(make([]float32, 3)), 5)
		}
		if err := c.Close(); err != nil {
			return err
		}
		return nil
	})
	if err := errs[0]; !errors.Is(err, tutti.ErrRankLost) || !strings.Contains(err.Error(), "Send#1") {
		t.Error(err)
	}
}
