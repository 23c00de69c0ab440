package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
)

// TestStreamFirst makes operations in the order of new streams the first ones of a Comm, while another
// goroutine allocates and frees device memory. A rank starts each operation only after the other ranks'
// goroutines have allocated: a rank that waits in Start for others blocks no driver call.
func TestStreamFirst(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		for _, verb := range []string{"AllReduce", "Barrier"} {
			for _, keep := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d/%s/keep=%v", n, verb, keep), func(t *testing.T) { streamFirst(t, n, verb, keep) })
			}
		}
	}
}

// streamFirst is one case of TestStreamFirst with n ranks. Each rank has a goroutine that runs churn until
// the rank's function returns; allocated counts its allocations. The last rank starts its operation only
// after the other ranks' counters have advanced. If keep is not set, each stream is closed after its
// operation.
func streamFirst(t *testing.T, n int, verb string, keep bool) {
	const streams = 8
	allocated := make([]atomic.Int64, n) // allocations of each rank's goroutine
	ok(t, run(t, n, tutti.Config{}, func(ctx context.Context, r *rank) error {
		ctx, cancel := context.WithCancel(ctx)
		churned := make(chan error, 1)
		go func() { churned <- churn(ctx, r.dev, &allocated[r.Rank()]) }()
		defer func() { cancel(); <-churned }()
		var open []*cuda.Stream
		defer func() {
			for _, s := range open {
				_ = s.Close()
			}
		}()
		for i := range streams {
			s, err := r.dev.NewStream()
			if err != nil {
				return err
			}
			open = append(open, s)
			b := r.Batch().On(s)
			if verb == "Barrier" {
				b.Barrier()
			} else {
				b.AllReduce(gpu.Of(r.x), tutti.Max)
			}
			if r.Rank() == n-1 {
				for other := range n - 1 {
					for before := allocated[other].Load(); allocated[other].Load() < before+2; time.Sleep(100 * time.Microsecond) {
						if ctx.Err() != nil {
							return fmt.Errorf("operation %d: rank %d cannot allocate while it waits in Start: %w", i, other, ctx.Err())
						}
					}
				}
			}
			w, err := b.Start(ctx)
			if err := first(err, w.Wait(ctx), s.Wait(ctx)); err != nil {
				return fmt.Errorf("operation %d: %w", i, err)
			}
			if !keep {
				if err := s.Close(); err != nil {
					return err
				}
			}
		}
		if verb == "AllReduce" {
			return r.holds(float32(n))
		}
		return nil
	}))
}

// churn allocates and frees device memory until the context ends. It counts the allocations.
func churn(ctx context.Context, dev *cuda.Device, count *atomic.Int64) error {
	for ctx.Err() == nil {
		m, err := cuda.Alloc[byte](dev, 1<<16)
		if err := first(err, m.Free()); err != nil {
			return err
		}
		count.Add(1)
	}
	return nil
}

// TestStreamNobodyComes has the other rank never call an operation in the order of a stream. The result
// is ErrTimeout, the stream continues, and a new Comm works.
func TestStreamNobodyComes(t *testing.T) {
	const timeout = 300 * time.Millisecond
	ok(t, run(t, 2, tutti.Config{Timeout: timeout}, func(ctx context.Context, r *rank) error {
		s, err := r.dev.NewStream()
		if err != nil {
			return err
		}
		defer s.Close()
		if r.Rank() == 0 {
			_, err := r.Batch().On(s).AllReduce(gpu.Of(r.x), tutti.Sum).Start(ctx)
			if !errors.Is(err, tutti.ErrTimeout) {
				return fmt.Errorf("nobody came, and Start returned %w", err)
			}
			return s.Wait(ctx)
		}
		<-r.Done()
		if err := r.Err(); !errors.Is(err, tutti.ErrTimeout) {
			return err
		}
		return nil
	}))
	ok(t, run(t, 2, tutti.Config{}, func(ctx context.Context, r *rank) error {
		return first(r.AllReduce(ctx, gpu.Of(r.x), tutti.Sum), r.holds(3))
	}))
}

// TestStuckDriver has driver calls that do not return, because the host holds back a stream of the
// program. The callers still get ErrTimeout. When the stream continues, everything is freed. The real
// driver waits in such calls only while it has something to load or to allocate.
func TestStuckDriver(t *testing.T) {
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	const timeout = 300 * time.Millisecond
	for name, call := range map[string]func(ctx context.Context, r *rank, s *cuda.Stream) error{
		"blocking": func(ctx context.Context, r *rank, _ *cuda.Stream) error {
			return r.AllReduce(ctx, gpu.Of(r.x), tutti.Sum)
		},
		"batch": func(ctx context.Context, r *rank, _ *cuda.Stream) error {
			w, err := r.Batch().AllReduce(gpu.Of(r.x), tutti.Sum).Start(ctx)
			return first(err, w.Wait(ctx))
		},
		"stream": func(ctx context.Context, r *rank, s *cuda.Stream) error {
			_, err := r.Batch().On(s).AllReduce(gpu.Of(r.x), tutti.Sum).Start(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ok(t, run(t, 1, tutti.Config{Timeout: timeout}, func(ctx context.Context, r *rank) error {
				own, err1 := r.dev.NewStream()
				held, err2 := r.dev.NewStream()
				hold, err3 := cuda.AllocHost[uint32](r.dev, 1)
				if err := first(err1, err2, err3); err != nil {
					return err
				}
				addr, err := hold.DevicePointer()
				if err := first(err, held.WaitValue(addr, 1)); err != nil {
					return err
				}
				begin := time.Now()
				failed := call(ctx, r, own)
				took := time.Since(begin)
				stuck, err := held.Done()
				store(&hold.Data()[0], 1)
				if err := first(err, held.Wait(ctx), hold.Free(), held.Close(), own.Close()); err != nil {
					return err
				}
				if stuck {
					return errors.New("the stream was not held back")
				}
				if !errors.Is(failed, tutti.ErrTimeout) || took > deadline/2 {
					return fmt.Errorf("after %v: %w", took, failed)
				}
				return nil
			}))
		})
	}
}
