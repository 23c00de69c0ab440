package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/race"
)

// TestBatch starts many batches of small and large operations and messages before
// it waits for any of them.
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

// TestBatchReuse starts one Batch many times. Then eight goroutines of each rank start other Batches and make
// blocking calls; all of these calls are alike, so their order does not matter. once guards failed, which is
// read after all goroutines have ended.
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

// TestGiveUpWait cancels the context of Wait, not of Start. Wait returns context.Canceled, the operation and
// the Comm continue, and a second Wait gets the result. Rank 1 joins the operation only after that.
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

// TestQueuedCancel cancels the context of an operation that is queued behind another, while the other rank
// makes no call. The whole group fails with ErrAborted, which names the queued operation; only rank 0 also
// matches context.Canceled.
func TestQueuedCancel(t *testing.T) {
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
		if !errors.Is(err, tutti.ErrAborted) || !strings.Contains(err.Error(), "Broadcast #2") ||
			errors.Is(err, context.Canceled) != (r == 0) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestOrder has two ranks start the same operations in different orders. Both ranks fail with ErrMismatch,
// because the names differ.
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

// TestMessagesOutsideTheOrder receives a message on rank 0 while its Barrier waits for rank 1. Rank 1 enters
// the Barrier only after its Send.
func TestMessagesOutsideTheOrder(t *testing.T) {
	comms := local(t, 2, tutti.Config{})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		x := []int{c.Rank()}
		if c.Rank() == 0 {
			w, err := c.Batch().Barrier().Start(ctx)
			if err != nil {
				return err
			}
			if _, err := c.Recv(ctx, 1, tutti.Of(x), 3); err != nil || x[0] != 1 {
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

// TestWaitTwice waits a second time for messages that were delivered, after later
// operations have failed.
func TestWaitTwice(t *testing.T) {
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
	if err := late.Wait(t.Context()); !errors.Is(err, tutti.ErrRevoked) {
		t.Errorf("what failed: %v", err)
	}
	for _, w := range works {
		if err := w.Wait(t.Context()); err != nil {
			t.Errorf("what had been delivered: %v", err)
		}
	}
}

// TestMessageErrors posts a Recv with another count than the Send: both ranks fail with ErrMismatch. Then the
// receiver closes its Comm instead: the sender fails with ErrRankLost.
func TestMessageErrors(t *testing.T) {
	comms := local(t, 2, tutti.Config{})
	errs := each(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 0 {
			return c.Send(ctx, 1, tutti.Of(make([]float32, 3)), 5)
		}
		w, err := c.Batch().Recv(0, tutti.Of(make([]float32, 4)), 5).Start(ctx)
		return errors.Join(err, w.Wait(context.Background()))
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
	if err := errs[0]; !errors.Is(err, tutti.ErrRankLost) || !strings.Contains(err.Error(), "Send #1") {
		t.Error(err)
	}
}

// TestBatchOverlap checks that Batches whose operations use overlapping memory are
// refused on every rank before any data moves, and that others are not.
func TestBatchOverlap(t *testing.T) {
	const n = 3
	type batch func(b *tutti.Batch, x, y []int32, rank int)
	buf := func(x []int32, i, j int) tutti.Buffer { return tutti.Of(x[i:j]) }
	for name, test := range map[string]struct {
		add  batch
		says []string // nil: not refused
	}{
		"read, then written": {func(b *tutti.Batch, x, y []int32, _ int) {
			b.AllGather(buf(y, 0, 6), buf(x, 0, 2)).Broadcast(buf(x, 0, 2), 0)
		}, []string{"the buffer of Broadcast (collective 2) is written", "the source of AllGather (collective 1)"}},
		"partly": {func(b *tutti.Batch, x, y []int32, _ int) {
			b.Broadcast(buf(x, 1, 4), 2).AllReduceTo(buf(y, 0, 2), buf(x, 0, 2), tutti.Sum)
		}, []string{"Broadcast (collective 1)", "the source of AllReduce (collective 2)"}},
		"written twice": {func(b *tutti.Batch, x, _ []int32, _ int) {
			b.AllReduce(buf(x, 0, 4), tutti.Sum).Barrier().AllReduce(buf(x, 3, 6), tutti.Sum)
		}, []string{"(collective 1)", "(collective 3)"}},
		"the root's destination, passed by all": {func(b *tutti.Batch, x, y []int32, _ int) {
			b.Reduce(buf(x, 0, 2), buf(y, 0, 2), tutti.Sum, 1).AllReduce(buf(x, 1, 3), tutti.Max)
		}, []string{"the destination of Reduce (collective 1)", "AllReduce (collective 2)"}},
		"a part": {func(b *tutti.Batch, x, y []int32, rank int) {
			b.AllGatherV(buf(x, 0, 6).Parts(nil, 1, 2, 3), buf(y, 0, 1+rank)).AllReduceTo(buf(y, 6, 7), buf(x, 2, 3), tutti.Sum)
		}, []string{"part 1 of the destination of AllGatherV (collective 1)", "the source of AllReduce (collective 2)"}},
		"parts of AllToAllV": {func(b *tutti.Batch, x, y []int32, _ int) {
			b.AllToAllV(buf(x, 0, 3).Parts(nil, 1, 1, 1), buf(y, 0, 3).Parts(nil, 1, 1, 1)).Broadcast(buf(y, 2, 4), 0)
		}, []string{"part 2 of the source of AllToAllV (collective 1)", "Broadcast (collective 2)"}},
		"the destination of ExScan, on all ranks but 0": {func(b *tutti.Batch, x, y []int32, _ int) {
			b.ExScan(buf(x, 0, 2), buf(y, 0, 2), tutti.Sum).Scan(buf(y, 4, 6), buf(x, 1, 3), tutti.Max)
		}, []string{"the destination of ExScan (collective 1)", "the source of Scan (collective 2)"}},
		"messages": {func(b *tutti.Batch, x, _ []int32, rank int) {
			b.Send((rank+1)%n, buf(x, 0, 3), 0).Recv((rank+n-1)%n, buf(x, 2, 5), 0)
		}, []string{"the buffer of Recv (message 2) is written", "the buffer of Send (message 1)"}},
		"a message and a collective": {func(b *tutti.Batch, x, _ []int32, rank int) {
			b.Send((rank+1)%n, buf(x, 0, 3), 0).Recv((rank+n-1)%n, buf(x, 3, 6), 0).AllReduce(buf(x, 0, 1), tutti.Sum)
		}, []string{"AllReduce (collective 1)", "Send (message 1)"}},

		"neighbours": {func(b *tutti.Batch, x, _ []int32, _ int) {
			b.AllReduce(buf(x, 3, 6), tutti.Sum).AllReduce(buf(x, 0, 3), tutti.Sum).AllReduce(buf(x, 4, 4), tutti.Sum)
		}, nil},
		"read twice": {func(b *tutti.Batch, x, y []int32, rank int) {
			b.AllReduceTo(buf(y, 0, 2), buf(x, 0, 2), tutti.Sum).AllGather(buf(y, 2, 8), buf(x, 0, 2)).
				Send((rank+1)%n, buf(x, 0, 3), 0).Recv((rank+n-1)%n, buf(y, 9, 12), 0)
		}, nil},
		"the root sends what it broadcasts": {func(b *tutti.Batch, x, y []int32, rank int) {
			var all tutti.Buffer
			if rank == 1 {
				all = buf(x, 0, 6)
			}
			b.Broadcast(buf(x, 0, 6), 1).Scatter(buf(y, 0, 2), all, 1)
		}, nil},
		"destinations of different roots": {func(b *tutti.Batch, x, y []int32, _ int) {
			b.Reduce(buf(x, 0, 2), buf(y, 0, 2), tutti.Sum, 0).Reduce(buf(x, 0, 2), buf(y, 2, 4), tutti.Sum, 1).
				Gather(buf(x, 0, 6), buf(y, 4, 6), 2)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			comms := local(t, n, tutti.Config{})
			all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
				x, y := make([]int32, 12), make([]int32, 12)
				b := c.Batch()
				test.add(b, x, y, c.Rank())
				for range 2 { // a refused Batch is refused again
					w, err := b.Start(ctx)
					if test.says == nil {
						if err != nil {
							return err
						}
						if err := w.Wait(ctx); err != nil {
							return err
						}
						continue
					}
					if !errors.Is(err, tutti.ErrInvalid) {
						return fmt.Errorf("%v is not ErrInvalid", err)
					}
					for _, word := range test.says {
						if !strings.Contains(err.Error(), word) {
							return fmt.Errorf("%w: does not say %q", err, word)
						}
					}
				}
				// The refusal has no effect: after Reset the same Batch runs other
				// operations.
				w, err := b.Reset().AllReduce(tutti.Of(x[:1]), tutti.Sum).AllReduce(tutti.Of(y[:1]), tutti.Sum).Start(ctx)
				if err != nil {
					return err
				}
				return w.Wait(ctx)
			})
		})
	}
}

// TestBatchOverlapOnOneRank has only one rank pass overlapping buffers. Its call
// fails, and it corrects them while the others wait for it.
func TestBatchOverlapOnOneRank(t *testing.T) {
	comms := local(t, 3, tutti.Config{})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		x, y := []int32{1}, []int32{2}
		if c.Rank() == 1 {
			_, err := c.Batch().AllReduce(tutti.Of(x), tutti.Sum).AllReduce(tutti.Of(x), tutti.Sum).Start(ctx)
			if !errors.Is(err, tutti.ErrInvalid) {
				return fmt.Errorf("%v is not ErrInvalid", err)
			}
		}
		w, err := c.Batch().AllReduce(tutti.Of(x), tutti.Sum).AllReduce(tutti.Of(y), tutti.Sum).Start(ctx)
		if err == nil {
			err = w.Wait(ctx)
		}
		if err == nil && (x[0] != 3 || y[0] != 6) {
			err = fmt.Errorf("%v %v", x, y)
		}
		return err
	})
}

// TestBatchCheckAllocates checks that a Batch is checked only once, and that
// checking a refilled Batch allocates no memory.
func TestBatchCheckAllocates(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	c := local(t, 1, tutti.Config{})[0]
	x := make([]int32, 200)
	b := c.Batch()
	start := func() {
		if w, err := b.Start(t.Context()); err != nil || w.Wait(t.Context()) != nil {
			t.Fatal(err)
		}
	}
	fill := func() {
		b.Reset()
		for i := range 100 {
			b.AllReduceTo(tutti.Of(x[i:i+1]), tutti.Of(x[100+i:101+i]), tutti.Sum)
		}
	}
	one := c.Batch().Barrier()
	startOne := func() {
		if w, err := one.Start(t.Context()); err != nil || w.Wait(t.Context()) != nil {
			t.Fatal(err)
		}
	}
	fill()
	start()
	usual := testing.AllocsPerRun(100, startOne)
	if got := testing.AllocsPerRun(100, start); got > usual {
		t.Errorf("starting a Batch again allocates %v times, one operation %v times", got, usual)
	}
	if got := testing.AllocsPerRun(100, func() { fill(); start() }); got > usual {
		t.Errorf("filling and starting a Batch again allocates %v times, one operation %v times", got, usual)
	}
}
