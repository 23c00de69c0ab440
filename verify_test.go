package tutti_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/engine"
)

// A corruptingDevice wraps an engine: it flips a bit in the results of one rank,
// beginning with one operation.
type corruptingDevice struct {
	rank int
	from uint64
}

func (b corruptingDevice) Attach(e engine.Engine, _ engine.DeviceOptions) (engine.Engine, error) {
	return &badEngine{e, b}, nil
}

type badEngine struct {
	engine.Engine
	bad corruptingDevice
}

func (e *badEngine) Run(ctx context.Context, seq uint64, calls []engine.Call) error {
	err := e.Engine.Run(ctx, seq, calls)
	if c := &calls[0]; err == nil && e.Rank() == e.bad.rank && seq >= e.bad.from && c.Method == "" {
		m := c.Dst
		if c.Uneven {
			m = c.DstParts[len(c.DstParts)-1]
		}
		*(*byte)(unsafe.Add(m.Ptr, m.Bytes()-1)) ^= 16
	}
	return err
}

// verifyOps are operations whose results are equal on all ranks.
var verifyOps = map[string]func(ctx context.Context, c *tutti.Comm) error{
	"AllReduce": func(ctx context.Context, c *tutti.Comm) error {
		return c.AllReduce(ctx, tutti.Of(make([]float32, 5_000)), tutti.Sum)
	},
	"Broadcast": func(ctx context.Context, c *tutti.Comm) error {
		return c.Broadcast(ctx, tutti.Of(make([]uint8, 5)), 0)
	},
	"AllGather": func(ctx context.Context, c *tutti.Comm) error {
		return c.AllGather(ctx, tutti.Of(make([]int64, 7*c.Size())), tutti.Of(make([]int64, 7)))
	},
	"AllGatherV": func(ctx context.Context, c *tutti.Comm) error {
		return c.AllGatherV(ctx, tutti.Of(make([]int64, 7*c.Size())).Parts(nil, slices.Repeat([]int{7}, c.Size())...), tutti.Of(make([]int64, 7)))
	},
	"Batch": func(ctx context.Context, c *tutti.Comm) error {
		w, err := c.Batch().AllReduce(tutti.Of(make([]float32, 5)), tutti.Sum).Barrier().Start(ctx)
		if err != nil {
			return err
		}
		return w.Wait(ctx)
	},
}

// runVerified runs the given number of operations on all ranks, a goroutine for each. A rank stops at its
// first error. It returns the errors and the number of completed operations, by rank.
func runVerified(t *testing.T, ranks, ops int, cfg tutti.Config, op func(context.Context, *tutti.Comm) error) ([]error, []int) {
	t.Helper()
	comms, err := tutti.Local(ranks, cfg)
	if err != nil {
		t.Fatal(err)
	}
	errs, did := make([]error, ranks), make([]int, ranks)
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			for did[r] < ops && errs[r] == nil {
				if errs[r] = op(t.Context(), c); errs[r] == nil {
					did[r]++
				}
			}
		})
	}
	wg.Wait()
	for _, c := range comms {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	return errs, did
}

// TestVerify lets corruptingDevice flip a bit in rank 1's results from some operation on. With Verify all
// ranks fail with ErrCorrupt at the next operation that is compared, and of three ranks the error names rank
// 1. Without Verify nothing is noticed.
func TestVerify(t *testing.T) {
	for name, op := range verifyOps {
		t.Run(name, func(t *testing.T) {
			errs, _ := runVerified(t, 3, 40, tutti.Config{Verify: true}, op)
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			errs, _ = runVerified(t, 3, 40, tutti.Config{Device: corruptingDevice{1, 20}}, op)
			if err := errors.Join(errs...); err != nil {
				t.Fatal("nothing is compared, but", err)
			}
			errs, did := runVerified(t, 3, 40, tutti.Config{Verify: true, Device: corruptingDevice{1, 20}}, op)
			for r, err := range errs {
				e := (*tutti.Error)(nil)
				if !errors.As(err, &e) || !errors.Is(err, tutti.ErrCorrupt) || e.Rank != 1 || e.Seq != 32 || did[r] != 31 ||
					!strings.Contains(err.Error(), "the result of rank 1 is not that of the others") {
					t.Errorf("rank %d, after %d: %v", r, did[r], err)
				}
			}
			errs, _ = runVerified(t, 2, 40, tutti.Config{Verify: true, Device: corruptingDevice{1, 1}}, op)
			for r, err := range errs {
				if !errors.Is(err, tutti.ErrCorrupt) || !strings.Contains(err.Error(), "ranks 0 and 1 have different results") {
					t.Errorf("rank %d of 2: %v", r, err)
				}
			}
		})
	}
}
