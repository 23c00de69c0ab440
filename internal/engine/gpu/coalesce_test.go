package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/fakegpu"
)

// coalesced runs a program on two ranks after each has launched n sums of x, which begins as one,
// without a completion event.
func coalesced(t *testing.T, n int, program func(e *Engine, x *cuda.Slice[float32]) error) {
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
				next = append(next, e.signature(sum(e, x)))
			}
			for i := range n {
				if p := launch(e, request{ctx: t.Context(), seq: uint64(i + 1), calls: sum(e, x), coalesce: true}, next[i:]...); p != nil {
					err = errors.Join(err, fmt.Errorf("operation %d was not coalesced: %w", i, p.settle()))
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

// launch launches one operation. next are the signatures of those that follow.
func launch(e *Engine, l request, next ...uint64) *pending {
	list := []request{l}
	e.launch(list, next)
	return list[0].pending
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

// TestCoalesced checks that four operations share one completion event. The last one records it,
// because no operation follows that the ranks have compared.
func TestCoalesced(t *testing.T) {
	clean(t)
	var before int
	if control != nil {
		before = control.Calls("cuEventRecord")
	}
	coalesced(t, 3, func(e *Engine, x *cuda.Slice[float32]) error {
		if n := e.agreedAhead(); n != 1 {
			return fmt.Errorf("%d more are agreed upon", n)
		}
		p := launch(e, request{ctx: t.Context(), seq: 4, calls: sum(e, x), coalesce: true})
		if p == nil {
			return errors.New("the last was coalesced")
		}
		return errors.Join(p.settle(), holds(x, 16))
	})
	if control != nil && control.Calls("cuEventRecord")-before != 2 {
		t.Errorf("%d events were recorded by two ranks", control.Calls("cuEventRecord")-before)
	}
}

// TestCoalescedFails makes the group fail while the device is at work on the first of several operations that
// share an event. The last one settles with ErrAborted on both ranks, and the device then no longer uses the
// memory of any of them.
func TestCoalescedFails(t *testing.T) {
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	for name, last := range map[string]func(e *Engine, x *cuda.Slice[float32]) *pending{
		"launched": func(e *Engine, x *cuda.Slice[float32]) *pending {
			p := launch(e, request{ctx: t.Context(), seq: 3, calls: sum(e, x), coalesce: true})
			e.Fail(&engine.Failure{Kind: engine.ErrAborted, Rank: 0, Facts: engine.Facts{Text: "enough"}})
			return p
		},
		"not launched": func(e *Engine, x *cuda.Slice[float32]) *pending {
			e.Fail(&engine.Failure{Kind: engine.ErrAborted, Rank: 0, Facts: engine.Facts{Text: "enough"}})
			return launch(e, request{ctx: t.Context(), seq: 3, calls: sum(e, x), coalesce: true})
		},
		"given up": func(e *Engine, x *cuda.Slice[float32]) *pending {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return launch(e, request{ctx: ctx, seq: 3, calls: sum(e, x), coalesce: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			clean(t)
			t.Cleanup(control.Reset)
			fired := control.Fired()
			control.Fail(fakegpu.Kernel, 1, fakegpu.Hang)
			coalesced(t, 2, func(e *Engine, x *cuda.Slice[float32]) error {
				p := last(e, x)
				if err := p.settle(); !errors.Is(err, engine.ErrAborted) {
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

// TestTogether launches three operations that share one completion event. Operations that consist of more
// than one call of NCCL keep their place among the others. Each rank runs on a goroutine that launches and
// settles its own operations.
func TestTogether(t *testing.T) {
	clean(t)
	premul := func(e *Engine, x *cuda.Slice[float32]) []engine.Call {
		calls := sum(e, x)
		calls[0].ReduceOp, calls[0].Scale = engine.PreMul, 2
		return calls
	}
	swap := func(e *Engine, x *cuda.Slice[float32]) []engine.Call {
		calls := sum(e, x)
		return []engine.Call{{Verb: engine.AllToAll, Src: calls[0].Src, Dst: calls[0].Dst}}
	}
	for name, c := range map[string]struct {
		calls func(e *Engine, x *cuda.Slice[float32]) []engine.Call
		want  func(rank int, x []float32) []float32 // after three operations
	}{
		"sums":     {sum, func(_ int, x []float32) []float32 { return []float32{4 * (x[0] + x[2]), 4 * (x[1] + x[3])} }},
		"products": {premul, func(_ int, x []float32) []float32 { return []float32{32 * (x[0] + x[2]), 32 * (x[1] + x[3])} }},
		"in place": {swap, func(r int, x []float32) []float32 { return []float32{x[r], x[2+r]} }},
	} {
		t.Run(name, func(t *testing.T) {
			engines := newEngines(t, 2, engine.DeviceOptions{})
			errs := make([]error, len(engines))
			var ranks sync.WaitGroup
			all := []float32{1, 2, 3, 4}
			for r, e := range engines {
				ranks.Go(func() {
					errs[r] = func() error {
						x, err := cuda.Alloc[float32](e.dev, 2)
						if err != nil {
							return err
						}
						if err := x.CopyFrom(all[2*r : 2*r+2]); err != nil {
							return err
						}
						var list []request
						var next []uint64
						for i := range 3 {
							list = append(list, request{ctx: t.Context(), seq: uint64(i + 1), calls: c.calls(e, x), coalesce: i < 2})
							next = append(next, e.signature(list[i].calls))
						}
						e.launch(list[:1], next[1:])
						e.launch(list[1:], nil)
						if list[0].pending != nil || list[1].pending != nil || list[2].pending == nil {
							return errors.New("they were not coalesced")
						}
						got := make([]float32, 2)
						if err := errors.Join(list[2].pending.settle(), x.CopyTo(got)); err != nil {
							return err
						}
						if want := c.want(r, all); !slices.Equal(got, want) {
							return fmt.Errorf("rank %d has %v, not %v", r, got, want)
						}
						return errors.Join(x.Free(), e.Close())
					}()
				})
			}
			ranks.Wait()
			ok(t, errs...)
		})
	}
}
