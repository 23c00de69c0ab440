package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/gpu"
	"github.com/tutti-go/tutti/internal/fakegpu"
)

func store(word *uint32, v uint32) { atomic.StoreUint32(word, v) }

// hang runs a collective whose kernel hangs on one rank, and checks each rank's error with check. A goroutine
// of rank 1 calls then when the fault has occurred. hang lengthens a short timeout if the ranks do not get
// that far.
func hang(t *testing.T, cfg tutti.Config, then func(r *rank), check func(r *rank, err error) bool) {
	t.Helper()
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	t.Cleanup(control.Reset)
	fired := control.Fired()
	for ; ; cfg.Timeout *= 4 {
		err := tryHang(t, cfg, then, check)
		if control.Fired() > fired {
			ok(t, err)
			return
		}
		if cfg.Timeout == 0 || cfg.Timeout > deadline/2 {
			t.Fatalf("the fault did not happen: %v", err)
		}
		control.Reset()
	}
}

// tryHang is one attempt of hang, on three ranks. Rank 0 makes its next kernel hang; a goroutine of rank 1
// waits for the fault and calls then. Each rank passes its error to check and makes a second call, which must
// return the same error. It returns the first error of a rank.
func tryHang(t *testing.T, cfg tutti.Config, then func(r *rank), check func(r *rank, err error) bool) error {
	t.Helper()
	fired := control.Fired()
	return run(t, 3, cfg, func(ctx context.Context, r *rank) error {
		if err := r.Barrier(ctx); err != nil {
			return err
		}
		if r.Rank() == 0 {
			control.Fail(fakegpu.Kernel, 1, fakegpu.Hang)
		}
		if err := r.Barrier(ctx); err != nil {
			return err
		}
		if r.Rank() == 1 {
			go func() {
				for control.Fired() == fired && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				then(r)
			}()
		}
		err := r.AllReduce(ctx, gpu.Of(r.x), tutti.Sum)
		if !check(r, err) {
			return fmt.Errorf("it says %v", err)
		}
		if again := r.AllReduce(ctx, gpu.Of(r.x), tutti.Sum); again == nil || err == nil || again.Error() != err.Error() {
			return fmt.Errorf("%v, and then %v", err, again)
		}
		return nil
	})
}

// TestAbort aborts a collective that hangs on the device, from another goroutine.
func TestAbort(t *testing.T) {
	hang(t, tutti.Config{}, func(r *rank) { r.Abort(errors.New("enough")) }, func(_ *rank, err error) bool {
		return errors.Is(err, tutti.ErrRevoked) && strings.Contains(err.Error(), "on rank 1: enough")
	})
}

// limitSaid matches the limit in whole seconds: the first one, or a longer one for a slow machine.
var limitSaid = regexp.MustCompile(`not done after (\d+m)?\d+s\b`)

// TestTimeout ends such a collective by the Comm's timeout.
func TestTimeout(t *testing.T) {
	hang(t, tutti.Config{Timeout: 2 * time.Second}, func(*rank) {}, func(_ *rank, err error) bool {
		return errors.Is(err, tutti.ErrTimeout) && limitSaid.MatchString(err.Error())
	})
}

// TestKernelFails makes a device fail in the middle of a collective on rank 0: both ranks return ErrAborted.
func TestKernelFails(t *testing.T) {
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	t.Cleanup(control.Reset)
	fired := control.Fired()
	ok(t, run(t, 2, tutti.Config{}, func(ctx context.Context, r *rank) error {
		if r.Rank() == 0 {
			control.Fail(fakegpu.Kernel, 1, 3)
		}
		if err := r.Barrier(ctx); err != nil {
			return err
		}
		if err := r.AllReduce(ctx, gpu.Of(r.x), tutti.Sum); !errors.Is(err, tutti.ErrAborted) {
			t.Errorf("rank %d: %v", r.Rank(), err)
		}
		return nil
	}))
	if control.Fired() == fired {
		t.Error("the fault did not happen")
	}
}

// TestInitFails lets the making of the communicator fail or hang on one rank; see initFails. It repeats with
// longer timeouts until the fault occurs.
func TestInitFails(t *testing.T) {
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	t.Cleanup(control.Reset)
	for _, code := range []int{2, fakegpu.Hang} {
		fired := control.Fired()
		// A busy machine may need longer to reach this point.
		for timeout := 2 * time.Second; control.Fired() == fired; timeout *= 4 {
			if timeout > deadline {
				t.Fatal("the fault did not happen")
			}
			control.Reset()
			initFails(t, timeout, code)
		}
	}
}

// initFails lets ncclCommInitRankConfig fail with code on rank 0 of two ranks. Every rank's AllReduce must
// return ErrAborted or ErrTimeout. If the fault did not occur before the timeout, it reports nothing, and the
// caller tries again.
func initFails(t *testing.T, timeout time.Duration, code int) {
	t.Helper()
	fired := control.Fired()
	err := run(t, 2, tutti.Config{Timeout: timeout}, func(ctx context.Context, r *rank) error {
		if r.Rank() == 0 {
			control.Fail("ncclCommInitRankConfig", 1, code)
		}
		if err := r.Barrier(ctx); err != nil {
			return err
		}
		err := r.AllReduce(ctx, gpu.Of(r.x), tutti.Sum)
		if !errors.Is(err, tutti.ErrAborted) && !errors.Is(err, tutti.ErrTimeout) {
			t.Errorf("rank %d: %v", r.Rank(), err)
		}
		if r.Rank() == 0 {
			control.Reset() // also if no call has reached the fault yet
		}
		return nil
	})
	if control.Fired() > fired {
		ok(t, err)
	}
}

// TestLeft closes rank 2 before the others have completed an operation that needs it: they fail with
// ErrRankLost that lists rank 2.
func TestLeft(t *testing.T) {
	ok(t, run(t, 3, tutti.Config{}, func(ctx context.Context, r *rank) error {
		// A rank may still be in the first operation when another one fails in the second.
		err := r.AllReduce(ctx, gpu.Of(r.x), tutti.Sum)
		if r.Rank() == 2 {
			return err
		}
		if err == nil {
			err = r.AllReduce(ctx, gpu.Of(r.x), tutti.Sum)
		}
		var e *tutti.Error
		if !errors.Is(err, tutti.ErrRankLost) || !errors.As(err, &e) || len(e.Lost) != 1 || e.Lost[0] != 2 {
			t.Errorf("rank %d: %v", r.Rank(), err)
		}
		return nil
	}))
}

// TestUnevenMismatch has one rank expect another count than it will receive. All ranks fail before any
// of them calls NCCL, where the others would wait.
func TestUnevenMismatch(t *testing.T) {
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	const call = "ncclGroupEnd"
	before := -1
	ok(t, run(t, 3, tutti.Config{}, func(ctx context.Context, r *rank) error {
		gather := func(wrong int) error {
			dst := make([]tutti.Buffer, r.Size())
			for i := range dst {
				dst[i] = gpu.Of(r.x).Slice(2*i, 2*i+2)
				if r.Rank() == 2 && i == 1 {
					dst[i] = gpu.Of(r.x).Slice(2*i, 2*i+2-wrong)
				}
			}
			return r.AllGatherV(ctx, dst, gpu.Of(r.x).Slice(90, 92))
		}
		if err := first(gather(0), r.Barrier(ctx)); err != nil {
			return err
		}
		if r.Rank() == 0 {
			before = control.Calls(call)
		}
		if err := r.Barrier(ctx); err != nil {
			return err
		}
		if err := gather(1); !errors.Is(err, tutti.ErrMismatch) || !strings.Contains(err.Error(), "rank 2 expects 1 elements from rank 1") {
			return fmt.Errorf("rank %d: %w", r.Rank(), err)
		}
		return nil
	}))
	if after := control.Calls(call); before <= 0 || after != before {
		t.Errorf("NCCL was called %d times, %d before", after, before)
	}
}
