package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/standin"
)

// joined runs a program on two ranks that have launched so many sums of x, which was one,
// without an event behind them.
func joined(t *testing.T, n int, program func(e *Engine, x *cuda.Slice[float32]) error) {
	t.Helper()
	engines := newEngines(t, 2, engine.DeviceOptions{})
	errs := make([]error, len(engines))
	var ranks, launched sync.WaitGroup
	launched.Add(len(engines))
	for r, e := range engines {
		ranks.Go(func() {
			x, err := cuda.Alloc[float32](e.dev, 100)
			if err == nil {
				err = x.Fill(1)
			}
			var next []uint64
			for range n {
				next = append(next, e.Sign(sum(e, x)))
			}
			for i := range n {
				if p := e.Launch(t.Context(), uint64(i+1), sum(e, x), nil, next[i:], true); p != nil {
					err = errors.Join(err, fmt.Errorf("operation %d was not joined: %w", i, p.Settle()))
				}
			}
			launched.Done()
			launched.Wait()
			if err == nil {
				err = program(e, x)
			}
			errs[r] = errors.Join(err, x.Free(), e.Close())
		})
	}
	ranks.Wait()
	ok(t, errs...)
}

// holds returns an error if x has another value.
func holds(x *cuda.Slice[float32], want float32) error {
	got := make([]float32, x.Len())
	if err := x.CopyTo(got); err != nil {
		return err
	}
	for i, v := range got {
		if v != want {
			return fmt.Errorf("element %d is %v, not %v", i, v, want)
		}
	}
	return nil
}

// TestJoined has one event tell of four operations; the last is not joined, because none
// that the ranks have agreed upon follows.
func TestJoined(t *testing.T) {
	clean(t)
	var before int
	if control != nil {
		before = control.Calls("cuEventRecord")
	}
	joined(t, 3, func(e *Engine, x *cuda.Slice[float32]) error {
		if n := e.Agreed(); n != 1 {
			return fmt.Errorf("%d more are agreed upon", n)
		}
		p := e.Launch(t.Context(), 4, sum(e, x), nil, nil, true)
		if p == nil {
			return errors.New("the last was joined")
		}
		return errors.Join(p.Settle(), holds(x, 16))
	})
	if control != nil && control.Calls("cuEventRecord")-before != 2 {
		t.Errorf("%d events were recorded by two ranks", control.Calls("cuEventRecord")-before)
	}
}

// TestJoinedFails has the group fail while the device is at work on the first of joined
// operations: when the last is settled, it uses their memory no more.
func TestJoinedFails(t *testing.T) {
	if control == nil {
		t.Skip("this test needs the stand-in")
	}
	for name, last := range map[string]func(e *Engine, x *cuda.Slice[float32]) engine.Pending{
		"launched": func(e *Engine, x *cuda.Slice[float32]) engine.Pending {
			p := e.Launch(t.Context(), 3, sum(e, x), nil, nil, true)
			e.Fail(&engine.Failure{Kind: engine.ErrAborted, Rank: 0, Reason: "enough"})
			return p
		},
		"not launched": func(e *Engine, x *cuda.Slice[float32]) engine.Pending {
			e.Fail(&engine.Failure{Kind: engine.ErrAborted, Rank: 0, Reason: "enough"})
			return e.Launch(t.Context(), 3, sum(e, x), nil, nil, true)
		},
		"given up": func(e *Engine, x *cuda.Slice[float32]) engine.Pending {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return e.Launch(ctx, 3, sum(e, x), nil, nil, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			clean(t)
			t.Cleanup(control.Reset)
			fired := control.Fired()
			control.Fail(standin.Kernel, 1, standin.Hang)
			joined(t, 2, func(e *Engine, x *cuda.Slice[float32]) error {
				p := last(e, x)
				if err := p.Settle(); !errors.Is(err, engine.ErrAborted) {
					return fmt.Errorf("rank %d was told %w", e.Rank(), err)
				}
				if done, err := e.stream.Done(); !done {
					return fmt.Errorf("the device is still at work: %w", err)
				}
				return nil
			})
			if control.Fired() == fired {
				t.Error("the fault did not happen")
			}
		})
	}
}
