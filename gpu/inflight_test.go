package gpu_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
	"github.com/tutti-go/tutti/internal/fakegpu"
)

// TestAhead starts an operation that the other rank calls only after it has heard that this rank's
// earlier operation is complete: a rank does not wait for the next operation before it reports.
func TestAhead(t *testing.T) {
	heard := make(chan struct{})
	ok(t, run(t, 2, tutti.Config{}, func(ctx context.Context, r *rank) error {
		b := r.Batch().AllReduce(gpu.Of(r.x), tutti.Sum)
		one, err := b.Start(ctx)
		if err != nil {
			return err
		}
		if r.Rank() == 1 {
			<-heard
		}
		two, err := b.Start(ctx)
		if err = first(err, one.Wait(ctx)); err != nil {
			return err
		}
		if r.Rank() == 0 {
			if two.Over() {
				return errors.New("the second one did not wait for the other rank")
			}
			close(heard)
		}
		return first(two.Wait(ctx), r.holds(6))
	}))
}

// TestManyAhead starts more operations than a device accepts at once, on device and host memory in
// turns, with barriers between them. They complete in order, and the results are right.
func TestManyAhead(t *testing.T) {
	const rounds = 30
	ok(t, run(t, 3, tutti.Config{}, func(ctx context.Context, r *rank) error {
		host := []int64{1}
		device := r.Batch().AllReduce(gpu.Of(r.x), tutti.Max)
		both := r.Batch().AllReduce(gpu.Of(r.x), tutti.Max).AllReduce(tutti.Of(host), tutti.Sum)
		var works []tutti.Work
		for i := range rounds {
			batches := []*tutti.Batch{device, device, device, device, device}
			switch i % 3 {
			case 1:
				batches = append(batches, r.Batch().AllReduce(tutti.Of(host), tutti.Sum))
			case 2:
				batches = append(batches, both, r.Batch().Barrier())
			}
			for _, b := range batches {
				w, err := b.Start(ctx)
				if err != nil {
					return err
				}
				works = append(works, w)
			}
		}
		for i := len(works) - 1; i >= 0; i-- {
			if err := works[i].Wait(ctx); err != nil {
				return err
			}
			if i > 0 && !works[i-1].Over() {
				return fmt.Errorf("operation %d is over, and the one before is not", i)
			}
		}
		want := int64(1)
		for range rounds / 3 * 2 {
			want *= 3
		}
		if host[0] != want {
			return fmt.Errorf("%d in host memory, want %d", host[0], want)
		}
		return r.holds(3)
	}))
}

// TestAheadOfMismatch starts many operations, one of which differs on one rank. The error names that
// operation, and it and all later ones fail.
func TestAheadOfMismatch(t *testing.T) {
	const all = 40
	for _, odd := range []int{0, 1, 3, 4, 17, 18, all - 1} {
		ok(t, run(t, 2, tutti.Config{}, func(ctx context.Context, r *rank) error {
			var works []tutti.Work
			for i := range all {
				b := r.Batch().AllReduce(gpu.Of(r.x), tutti.Max)
				if i == odd && r.Rank() == 1 {
					b = r.Batch().Broadcast(gpu.Of(r.x), 0)
				}
				w, err := b.Start(ctx)
				if errors.Is(err, tutti.ErrMismatch) {
					break
				}
				if err != nil {
					return err
				}
				works = append(works, w)
			}
			for i, w := range works {
				err := w.Wait(ctx)
				if err == nil && i < odd {
					continue
				}
				if !errors.Is(err, tutti.ErrMismatch) || !strings.Contains(err.Error(), "AllReduce") || !strings.Contains(err.Error(), "Broadcast") {
					return fmt.Errorf("the odd one is %d, operation %d: %w", odd, i, err)
				}
			}
			return nil
		}))
	}
}

// TestAheadOfFailure makes the first of several submitted operations hang on rank 0, which calls Abort when
// all are in flight. All of them fail with the same cause on both ranks, and their streams continue.
func TestAheadOfFailure(t *testing.T) {
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	t.Cleanup(control.Reset)
	fired := control.Fired()
	ok(t, run(t, 2, tutti.Config{}, func(ctx context.Context, r *rank) error {
		s, err := r.dev.NewStream()
		if err != nil {
			return err
		}
		defer s.Close()
		if err := r.AllReduce(ctx, gpu.Of(r.x), tutti.Max); err != nil {
			return err
		}
		if r.Rank() == 0 {
			control.Fail(fakegpu.Kernel, 1, fakegpu.Hang)
		}
		if err := r.Barrier(ctx); err != nil {
			return err
		}
		// The other rank may receive the abort while it starts the last operation.
		aborted := func(err error) bool {
			return errors.Is(err, tutti.ErrRevoked) && strings.Contains(err.Error(), "on rank 0: enough")
		}
		var works []tutti.Work
		for range 5 {
			w, err := r.Batch().On(s).AllReduce(gpu.Of(r.x), tutti.Max).Start(ctx)
			if r.Rank() == 1 && aborted(err) {
				break
			}
			if err != nil {
				return err
			}
			works = append(works, w)
		}
		if r.Rank() == 0 {
			if err := awaitInFlight(ctx, r, s, fired, len(works)); err != nil {
				return err
			}
			r.Abort(errors.New("enough"))
		}
		for i, w := range works {
			if err := w.Wait(ctx); !aborted(err) {
				return fmt.Errorf("rank %d: operation %d: %w", r.Rank(), i, err)
			}
		}
		return s.Wait(ctx)
	}))
}

// awaitInFlight polls the rank's dump until the fault has occurred and want operations are submitted to the
// device, none of them complete. It returns an error if ctx ends first or the stream does not wait.
func awaitInFlight(ctx context.Context, r *rank, s *cuda.Stream, fired, want int) error {
	for {
		var dump bytes.Buffer
		if err := r.Dump(&dump); err != nil {
			return err
		}
		if n := strings.Count(dump.String(), `"running"`); control.Fired() > fired && n == want {
			break
		} else if ctx.Err() != nil {
			return fmt.Errorf("%d of %d operations run: %w", n, want, ctx.Err())
		}
		time.Sleep(time.Millisecond)
	}
	if done, err := s.Done(); done {
		return errors.New("the stream did not wait")
	} else {
		return err
	}
}
