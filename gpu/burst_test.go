package gpu_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/gpu"
	"github.com/tutti-go/tutti/internal/fakegpu"
)

// TestBursts starts many small operations at once. It waits for the last one, or one in the middle,
// or polls. Every operation completes, and the earlier ones are complete then too.
func TestBursts(t *testing.T) {
	const most = 600 // more than the device accepts at once
	bursts := []int{1, most, 2, 300, 7, most, 40, most}
	ok(t, run(t, 2, tutti.Config{}, func(ctx context.Context, r *rank) error {
		count := []int64{0}
		small := r.Batch().AllReduce(gpu.Of(r.x), tutti.Max)
		for i, n := range bursts {
			works := make([]tutti.Work, n)
			for j := range works {
				var err error
				if works[j], err = small.Start(ctx); err != nil {
					return err
				}
			}
			if i%2 == 1 { // operations on host memory run after those on the device
				count[0]++
				if err := r.AllReduce(ctx, tutti.Of(count), tutti.Max); err != nil {
					return err
				}
			}
			for !works[n/3].Over() {
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
			for _, j := range []int{n / 2, n - 1} {
				if err := works[j].Wait(ctx); err != nil {
					return err
				}
				for k := range j {
					if !works[k].Over() {
						return fmt.Errorf("burst %d: operation %d is over, %d is not", i, j, k)
					}
				}
			}
			if err := r.holds(2); err != nil {
				return err
			}
		}
		return nil
	}))
}

// TestBurstFails makes an operation in the middle of a burst hang on rank 0, which then calls Abort. The
// earlier operations complete; the one that hangs and the later ones fail with the same cause on both ranks.
func TestBurstFails(t *testing.T) {
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	t.Cleanup(control.Reset)
	const all, hangs = 300, 100
	ok(t, run(t, 2, tutti.Config{}, func(ctx context.Context, r *rank) error {
		small := r.Batch().AllReduce(gpu.Of(r.x), tutti.Max)
		burst := func() (works []tutti.Work, err error) {
			for range all {
				w, err := small.Start(ctx)
				if err != nil {
					return works, err
				}
				works = append(works, w)
			}
			return works, nil
		}
		works, err := burst() // measures how long they take
		if err == nil {
			err = works[all-1].Wait(ctx)
		}
		if err != nil {
			return err
		}
		fired := control.Fired()
		if r.Rank() == 0 {
			control.Fail(fakegpu.Kernel, hangs, fakegpu.Hang)
		}
		if err := r.Barrier(ctx); err != nil {
			return err
		}
		// The other rank may fail before this one has started all operations.
		if works, err = burst(); err != nil && (r.Rank() == 0 || !errors.Is(err, tutti.ErrRevoked)) {
			return err
		}
		if r.Rank() == 0 {
			for control.Fired() == fired && ctx.Err() == nil {
				works[0].Over()
				if err := inOrder(r); err != nil {
					return err
				}
			}
			if err := inOrder(r); err != nil {
				return err
			}
			r.Abort(errors.New("enough"))
		}
		failed := 0
		for i, w := range works {
			err := w.Wait(ctx)
			switch {
			case err == nil && failed > 0:
				return fmt.Errorf("operation %d is well, after one that failed", i)
			case err != nil && (!errors.Is(err, tutti.ErrRevoked) || !strings.Contains(err.Error(), "on rank 0: enough")):
				return fmt.Errorf("operation %d: %w", i, err)
			case err != nil:
				failed++
			}
		}
		if failed < len(works)-hangs {
			return fmt.Errorf("%d of %d operations failed, although the %dth did not end", failed, len(works), hangs)
		}
		return nil
	}))
}

// inOrder returns an error if a dump says that an operation is complete and an earlier one is not.
func inOrder(r *rank) error {
	var text bytes.Buffer
	if err := r.Dump(&text); err != nil {
		return err
	}
	var dump struct {
		Ops []struct {
			Seq   uint64
			State string
		}
	}
	if err := json.Unmarshal(text.Bytes(), &dump); err != nil {
		return err
	}
	order := map[string]int{"done": 0, "running": 1, "queued": 2}
	last := 0
	for _, op := range dump.Ops {
		at, ok := order[op.State]
		if !ok || at < last {
			return fmt.Errorf("operation %d is %s: %s", op.Seq, op.State, text.String())
		}
		last = at
	}
	return nil
}
