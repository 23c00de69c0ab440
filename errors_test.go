package tutti_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti"
)

// deadline is how long a test waits before a step counts as hung.
const deadline = 60 * time.Second

// local returns n ranks. At the end of the test it closes them and checks for
// leaks.
func local(t testing.TB, n int, cfg tutti.Config) []*tutti.Comm {
	t.Helper()
	comms, err := tutti.Local(n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range comms {
			_ = c.Err() // Close returns a failure that no call has returned
			if err := c.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	})
	return comms
}

// each runs f on every rank concurrently and returns the errors by rank.
func each(t testing.TB, comms []*tutti.Comm, f func(ctx context.Context, c *tutti.Comm) error) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	errs := make([]error, len(comms))
	var ranks sync.WaitGroup
	for i, c := range comms {
		ranks.Go(func() { errs[i] = f(ctx, c) })
	}
	ranks.Wait()
	return errs
}

// all is each for functions that must not fail. It reports all errors, because the
// first may be a consequence of another.
func all(t testing.TB, comms []*tutti.Comm, f func(ctx context.Context, c *tutti.Comm) error) {
	t.Helper()
	var bad error
	for r, err := range each(t, comms, f) {
		if err != nil {
			bad = errors.Join(bad, fmt.Errorf("rank %d: %w", r, err))
		}
	}
	if bad != nil {
		t.Fatal(bad)
	}
}

// TestMismatch has rank 1 make another call than the other ranks, each rank on a goroutine of its own. Every
// rank, also one whose own part was complete, fails with the same ErrMismatch, which names rank 1 and both
// calls.
func TestMismatch(t *testing.T) {
	f32 := func(n int) tutti.Buffer { return tutti.Of(make([]float32, n)) }
	i32 := func(n int) tutti.Buffer { return tutti.Of(make([]int32, n)) }
	type call func(ctx context.Context, c *tutti.Comm) error
	reduce := func(b tutti.Buffer, op tutti.Op) call {
		return func(ctx context.Context, c *tutti.Comm) error { return c.AllReduce(ctx, b, op) }
	}
	named := func(name string) call {
		return func(ctx context.Context, c *tutti.Comm) error {
			w, err := c.Batch().AllReduce(f32(4), tutti.Sum).Named(name).Start(ctx)
			if err != nil {
				return err
			}
			return w.Wait(ctx)
		}
	}
	broadcast := func(root int) call {
		return func(ctx context.Context, c *tutti.Comm) error { return c.Broadcast(ctx, f32(4), root) }
	}
	batch := func(sizes ...int) call {
		return func(ctx context.Context, c *tutti.Comm) error {
			b := c.Batch()
			for _, n := range sizes {
				b.AllReduce(f32(n), tutti.Sum)
			}
			w, err := b.Start(ctx)
			if err != nil {
				return err
			}
			return w.Wait(ctx)
		}
	}
	for _, test := range []struct {
		name       string
		most, odd  call
		sees, says string
	}{
		{"verb", reduce(f32(4), tutti.Sum), call(func(ctx context.Context, c *tutti.Comm) error { return c.Barrier(ctx) }), "AllReduce(4 x float32, sum)", "Barrier"},
		{"count", reduce(f32(4), tutti.Sum), reduce(f32(5), tutti.Sum), "4 x float32", "5 x float32"},
		{"count, large", reduce(f32(40000), tutti.Sum), reduce(f32(50000), tutti.Sum), "40000 x float32", "50000 x float32"},
		{"small and large", reduce(f32(4), tutti.Sum), reduce(f32(50000), tutti.Sum), "4 x float32", "50000 x float32"},
		{"type", reduce(f32(4), tutti.Sum), reduce(i32(4), tutti.Sum), "float32", "int32"},
		{"op", reduce(f32(4), tutti.Sum), reduce(f32(4), tutti.Max), "sum", "max"},
		{"root", broadcast(0), broadcast(1), "root 0", "root 1"},
		{"name", named("gradients"), named("weights"), `name "gradients"`, `name "weights"`},
		{"batch", batch(1, 2, 3), batch(1, 2, 4), "3 x float32", "4 x float32"},
		{"batch length", batch(1, 2, 3), batch(1, 2), "Batch(3 operations)", "Batch(2 operations)"},
	} {
		for _, n := range []int{2, 5} {
			t.Run(fmt.Sprintf("%s/ranks=%d", test.name, n), func(t *testing.T) {
				comms := local(t, n, tutti.Config{})
				errs := each(t, comms, func(ctx context.Context, c *tutti.Comm) error {
					f := test.most
					if c.Rank() == 1 {
						f = test.odd
					}
					if err := f(ctx, c); err != nil {
						return err
					}
					// This rank had completed its part. The next call must fail.
					return c.Barrier(ctx)
				})
				for r, err := range errs {
					if !errors.Is(err, tutti.ErrMismatch) {
						t.Fatalf("rank %d: %v", r, err)
					}
					if err.Error() != errs[0].Error() {
						t.Errorf("rank %d has another cause:\n%v\n%v", r, err, errs[0])
					}
					for _, part := range []string{"rank 1 called", test.sees, test.says} {
						if !strings.Contains(err.Error(), part) {
							t.Errorf("rank %d: %q is missing in %v", r, part, err)
						}
					}
					if got := comms[r].Err(); !errors.Is(got, tutti.ErrMismatch) {
						t.Errorf("rank %d: Err is %v", r, got)
					}
					<-comms[r].Done()
				}
			})
		}
	}
}

// TestAbsentRank has rank 2 make no call until the deadline of rank 0. All ranks fail with ErrTimeout that
// names rank 2 and its last call; only rank 0 also matches context.DeadlineExceeded.
func TestAbsentRank(t *testing.T) {
	for _, elems := range []int{1, 100_000} {
		errs := untilOthersCome("rank 2 has not arrived (rank 2 last called Barrier)", func(late time.Duration) []error {
			return absentRank(t, elems, late)
		})
		for r, err := range errs {
			if !errors.Is(err, tutti.ErrTimeout) || !strings.Contains(err.Error(), "rank 2 has not arrived (rank 2 last called Barrier)") {
				t.Errorf("rank %d: %v", r, err)
			}
			if own := errors.Is(err, context.DeadlineExceeded); own != (r == 0) {
				t.Errorf("rank %d: matches DeadlineExceeded: %v", r, own)
			}
			var e *tutti.Error
			if !errors.As(err, &e) || e.Rank != 0 || e.Op != "AllReduce" || e.Seq != 2 {
				t.Errorf("rank %d: %+v", r, e)
			}
		}
	}
}

// untilOthersCome repeats try with longer times until the errors contain a text. On
// a busy machine the time may pass before the other ranks arrive, or before the
// call.
func untilOthersCome(says string, try func(late time.Duration) []error) []error {
	for late := 20 * time.Millisecond; ; late *= 4 {
		errs := try(late)
		if late >= deadline/4 || !slices.ContainsFunc(errs, func(err error) bool { return !strings.Contains(fmt.Sprint(err), says) }) {
			return errs
		}
	}
}

// absentRank returns the errors of four ranks when one of them makes no call until
// the deadline of another.
func absentRank(t *testing.T, elems int, late time.Duration) []error {
	t.Helper()
	comms := local(t, 4, tutti.Config{})
	all(t, comms, func(ctx context.Context, c *tutti.Comm) error { return c.Barrier(ctx) })
	return each(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		switch c.Rank() {
		case 2:
			<-c.Done()
			return c.Err()
		case 0:
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, late)
			defer cancel()
		}
		return c.AllReduce(ctx, tutti.Of(make([]float64, elems)), tutti.Sum)
	})
}

// TestTimeout is TestAbsentRank with only the Config's timeout: no context ends, so no rank matches
// context.DeadlineExceeded.
func TestTimeout(t *testing.T) {
	var waited time.Duration
	errs := untilOthersCome("rank 1 has not arrived", func(late time.Duration) []error {
		waited = late
		return each(t, local(t, 3, tutti.Config{Timeout: late}), func(_ context.Context, c *tutti.Comm) error {
			if c.Rank() == 1 {
				<-c.Done()
				return c.Err()
			}
			return c.Barrier(context.Background())
		})
	})
	for r, err := range errs {
		if !errors.Is(err, tutti.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), fmt.Sprintf("not done after %v: rank 1 has not arrived", waited)) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestCancel cancels rank 0's context while ranks 0 and 2 wait in Barrier. All ranks fail with ErrAborted;
// only rank 0 also matches context.Canceled.
func TestCancel(t *testing.T) {
	comms := local(t, 3, tutti.Config{})
	errs := each(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 1 {
			<-c.Done()
			_, err := c.Recv(ctx, 0, tutti.Of([]int{0}), 0)
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if c.Rank() == 0 {
			time.AfterFunc(10*time.Millisecond, cancel)
		}
		return c.Barrier(ctx)
	})
	for r, err := range errs {
		if !errors.Is(err, tutti.ErrAborted) || errors.Is(err, context.Canceled) != (r == 0) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestAbort calls Abort on rank 1 while the others wait in AllReduce. All ranks fail with ErrRevoked and the
// text of the reason; only rank 1 matches the reason itself. Later calls return the same error.
func TestAbort(t *testing.T) {
	comms := local(t, 3, tutti.Config{})
	why := errors.New("the loss is not a number")
	errs := each(t, comms, func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 1 {
			c.Abort(why)
			return c.Err()
		}
		return c.AllReduce(ctx, tutti.Of(make([]int64, 1<<20)), tutti.Sum)
	})
	for r, err := range errs {
		if !errors.Is(err, tutti.ErrRevoked) || errors.Is(err, why) != (r == 1) || !strings.Contains(err.Error(), why.Error()) {
			t.Errorf("rank %d: %v", r, err)
		}
		if again := comms[r].Barrier(t.Context()); again != err {
			t.Errorf("rank %d: a later call returned %v", r, again)
		}
	}
}

// TestClosedPeer has rank 2 close its Comm while the others continue. Its Close succeeds, and the other ranks
// fail with ErrRankLost that lists rank 2.
func TestClosedPeer(t *testing.T) {
	for _, elems := range []int{1, 100_000} {
		comms := local(t, 3, tutti.Config{})
		errs := each(t, comms, func(ctx context.Context, c *tutti.Comm) error {
			if err := c.AllReduce(ctx, tutti.Of(make([]int, elems)), tutti.Sum); err != nil {
				return err
			}
			if c.Rank() == 2 {
				return c.Close()
			}
			return c.AllReduce(ctx, tutti.Of(make([]int, elems)), tutti.Sum)
		})
		for r, err := range errs[:2] {
			var e *tutti.Error
			if !errors.Is(err, tutti.ErrRankLost) || !errors.As(err, &e) || len(e.Lost) != 1 || e.Lost[0] != 2 {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		if errs[2] != nil {
			t.Errorf("Close: %v", errs[2])
		}
	}
}

// TestWrongArguments makes every kind of invalid call on rank 1 while the others are in a valid call. Rank 1
// gets ErrInvalid or ErrNoDevicePath at once, and its following valid call succeeds on all ranks: a refusal
// affects no other rank.
func TestWrongArguments(t *testing.T) {
	const n = 3
	var x [12]float32
	buf := func(i, j int) tutti.Buffer { return tutti.Of(x[i:j]) }
	none := tutti.Buffer{}
	device := tutti.DeviceBuffer(1, unsafe.Pointer(&x), tutti.Float32Type, 4)
	wrong := map[string]struct {
		call func(ctx context.Context, c *tutti.Comm) error
		kind error
		says string
	}{
		"no buffer": {func(ctx context.Context, c *tutti.Comm) error { return c.AllReduce(ctx, none, tutti.Sum) }, tutti.ErrInvalid, "missing"},
		"no op":     {func(ctx context.Context, c *tutti.Comm) error { return c.AllReduce(ctx, buf(0, 4), tutti.Op{}) }, tutti.ErrInvalid, "zero Op"},
		"overlap": {func(ctx context.Context, c *tutti.Comm) error {
			return c.AllReduceTo(ctx, buf(0, 4), buf(2, 6), tutti.Sum)
		}, tutti.ErrInvalid, "overlap"},
		"types": {func(ctx context.Context, c *tutti.Comm) error {
			return c.AllReduceTo(ctx, buf(0, 4), tutti.Of(make([]int32, 4)), tutti.Sum)
		}, tutti.ErrInvalid, "int32"},
		"lengths": {func(ctx context.Context, c *tutti.Comm) error {
			return c.AllReduceTo(ctx, buf(0, 4), buf(4, 9), tutti.Sum)
		}, tutti.ErrInvalid, "5 elements"},
		"short receive":  {func(ctx context.Context, c *tutti.Comm) error { return c.AllGather(ctx, buf(0, 5), buf(10, 12)) }, tutti.ErrInvalid, "need 6"},
		"gather overlap": {func(ctx context.Context, c *tutti.Comm) error { return c.AllGather(ctx, buf(0, 6), buf(1, 3)) }, tutti.ErrInvalid, "overlaps"},
		"root":           {func(ctx context.Context, c *tutti.Comm) error { return c.Broadcast(ctx, buf(0, 4), n) }, tutti.ErrInvalid, "root 3"},
		"negative root":  {func(ctx context.Context, c *tutti.Comm) error { return c.Gather(ctx, none, buf(0, 4), -1) }, tutti.ErrInvalid, "root -1"},
		"no destination": {func(ctx context.Context, c *tutti.Comm) error {
			return c.Reduce(ctx, none, buf(0, 4), tutti.Sum, c.Rank())
		}, tutti.ErrInvalid, "destination is missing"},
		"no source":    {func(ctx context.Context, c *tutti.Comm) error { return c.Scatter(ctx, buf(0, 4), none, c.Rank()) }, tutti.ErrInvalid, "source is missing"},
		"scatter size": {func(ctx context.Context, c *tutti.Comm) error { return c.Scatter(ctx, buf(0, 2), buf(4, 12), c.Rank()) }, tutti.ErrInvalid, "need 6"},
		"parts": {func(ctx context.Context, c *tutti.Comm) error {
			return c.AllGatherV(ctx, buf(0, 4).Parts(nil, 2, 2), buf(8, 10))
		}, tutti.ErrInvalid, "2 parts"},
		"parts overlap": {func(ctx context.Context, c *tutti.Comm) error {
			return c.AllGatherV(ctx, []tutti.Buffer{buf(0, 2), buf(1, 3), buf(4, 6)}, buf(8, 10))
		}, tutti.ErrInvalid, "parts 0 and 1"},
		"parts out of range": {func(ctx context.Context, c *tutti.Comm) error {
			return c.AllGatherV(ctx, buf(0, 4).Parts(nil, 2, 2, 2), buf(8, 10))
		}, tutti.ErrInvalid, "out of range"},
		"part types": {func(ctx context.Context, c *tutti.Comm) error {
			return c.AllToAllV(ctx, buf(0, 3).Parts(nil, 1, 1, 1), tutti.Of(make([]int8, 3)).Parts(nil, 1, 1, 1))
		}, tutti.ErrInvalid, "int8"},
		"indivisible": {func(ctx context.Context, c *tutti.Comm) error { return c.AllToAll(ctx, buf(0, 4), buf(4, 8)) }, tutti.ErrInvalid, "divided"},
		"slice":       {func(ctx context.Context, c *tutti.Comm) error { return c.Broadcast(ctx, buf(0, 4).Slice(3, 9), 0) }, tutti.ErrInvalid, "out of range"},
		"integer premul": {func(ctx context.Context, c *tutti.Comm) error {
			return c.AllReduce(ctx, tutti.Of(make([]int8, 1)), tutti.PreMul(2))
		}, tutti.ErrInvalid, "premul of int8"},
		"integer average": {func(ctx context.Context, c *tutti.Comm) error {
			return c.Reduce(ctx, none, tutti.Of(make([]uint64, 1)), tutti.Avg, 0)
		}, tutti.ErrInvalid, "avg of uint64"},
		"integer average, uneven": {func(ctx context.Context, c *tutti.Comm) error {
			return c.ReduceScatterV(ctx, tutti.Of(make([]int32, 1)), tutti.Of(make([]int32, 3)).Parts(nil, 1, 1, 1), tutti.Avg)
		}, tutti.ErrInvalid, "avg of int32"},
		"integer average in a batch": {func(ctx context.Context, c *tutti.Comm) error {
			_, err := c.Batch().AllReduce(tutti.Of(make([]int32, 1)), tutti.Avg).Start(ctx)
			return err
		}, tutti.ErrInvalid, "avg of int32"},
		"device -1": {func(ctx context.Context, c *tutti.Comm) error {
			return c.AllReduce(ctx, tutti.DeviceBuffer(-1, unsafe.Pointer(&x), tutti.Float32Type, 4), tutti.Sum)
		}, tutti.ErrInvalid, "device -1"},
		"device 65535": {func(ctx context.Context, c *tutti.Comm) error {
			return c.AllReduce(ctx, tutti.DeviceBuffer(65535, unsafe.Pointer(&x), tutti.Float32Type, 4), tutti.Sum)
		}, tutti.ErrInvalid, "device 65535"},
		"device 32767 sliced": {func(ctx context.Context, c *tutti.Comm) error {
			return c.Broadcast(ctx, tutti.DeviceBuffer(32767, unsafe.Pointer(&x), tutti.Float32Type, 4).Slice(1, 2), 0)
		}, tutti.ErrInvalid, "device 32767"},
		"device in a message": {func(ctx context.Context, c *tutti.Comm) error {
			return c.Send(ctx, 0, tutti.DeviceBuffer(math.MinInt, unsafe.Pointer(&x), tutti.Float32Type, 4), 0)
		}, tutti.ErrInvalid, "device -9223372036854775808"},
		"device in a part": {func(ctx context.Context, c *tutti.Comm) error {
			list := []tutti.Buffer{buf(0, 1), tutti.DeviceBuffer(-1, unsafe.Pointer(&x), tutti.Float32Type, 1), buf(2, 3)}
			return c.AllGatherV(ctx, list, buf(8, 9))
		}, tutti.ErrInvalid, "device -1"},
		"negative length": {func(ctx context.Context, c *tutti.Comm) error {
			return c.AllReduce(ctx, tutti.DeviceBuffer(1, unsafe.Pointer(&x), tutti.Float32Type, -4), tutti.Sum)
		}, tutti.ErrInvalid, "-4 elements"},
		"length overflows": {func(ctx context.Context, c *tutti.Comm) error {
			return c.AllReduce(ctx, tutti.DeviceBuffer(1, unsafe.Pointer(&x), tutti.Int64Type, math.MaxInt/8+1), tutti.Sum)
		}, tutti.ErrInvalid, "address space"},
		"part without a type": {func(ctx context.Context, c *tutti.Comm) error {
			list := []tutti.Buffer{buf(0, 1), tutti.DeviceBuffer(1, unsafe.Pointer(&x), 0, 1), buf(2, 3)}
			return c.AllGatherV(ctx, list, buf(8, 9))
		}, tutti.ErrInvalid, "part 1"},
		"parts of nothing": {func(ctx context.Context, c *tutti.Comm) error {
			return c.AllToAllV(ctx, none.Parts(nil, 1, 1, 1), buf(0, 3).Parts(nil, 1, 1, 1))
		}, tutti.ErrInvalid, "part 0"},
		"exchange in place": {func(ctx context.Context, c *tutti.Comm) error {
			return c.SendRecv(ctx, 0, buf(0, 4), 0, buf(0, 4), 0)
		}, tutti.ErrInvalid, "overlaps"},
		"exchange overlaps": {func(ctx context.Context, c *tutti.Comm) error {
			return c.SendRecv(ctx, 0, buf(0, 4), 0, buf(3, 7), 0)
		}, tutti.ErrInvalid, "overlaps"},
		"device":  {func(ctx context.Context, c *tutti.Comm) error { return c.AllReduce(ctx, device, tutti.Sum) }, tutti.ErrNoDevicePath, "device 1"},
		"peer":    {func(ctx context.Context, c *tutti.Comm) error { return c.Send(ctx, n, buf(0, 4), 0) }, tutti.ErrInvalid, "rank 3"},
		"tag":     {func(ctx context.Context, c *tutti.Comm) error { _, err := c.Recv(ctx, 0, buf(0, 4), -1); return err }, tutti.ErrInvalid, "tag -1"},
		"message": {func(ctx context.Context, c *tutti.Comm) error { return c.SendRecv(ctx, 0, none, 0, buf(0, 4), 0) }, tutti.ErrInvalid, "missing"},
		"context": {func(_ context.Context, c *tutti.Comm) error { var no context.Context; return c.Barrier(no) }, tutti.ErrInvalid, "context is nil"},
		"colour":  {func(ctx context.Context, c *tutti.Comm) error { _, err := c.Split(ctx, -2, 0); return err }, tutti.ErrInvalid, "negative"},
		"memory": {func(ctx context.Context, c *tutti.Comm) error {
			_, err := tutti.Alloc[float64](ctx, c, math.MaxInt/8)
			return err
		}, tutti.ErrInvalid, "elements"},
		"batch": {func(ctx context.Context, c *tutti.Comm) error {
			_, err := c.Batch().Barrier().AllReduce(none, tutti.Sum).Barrier().Start(ctx)
			return err
		}, tutti.ErrInvalid, "AllReduce"},
	}
	for name, test := range wrong {
		t.Run(name, func(t *testing.T) {
			comms := local(t, n, tutti.Config{})
			all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
				if c.Rank() == 1 {
					err := test.call(ctx, c)
					if !errors.Is(err, test.kind) || !strings.Contains(fmt.Sprint(err), test.says) {
						return fmt.Errorf("%v is not %v with %q", err, test.kind, test.says)
					}
				}
				sum, err := tutti.AllReduceValue(ctx, c, c.Rank(), tutti.Sum)
				if err == nil && sum != n {
					err = fmt.Errorf("the sum is %d", sum)
				}
				return err
			})
		})
	}
}

// TestUseAfterClose checks that every call on a closed Comm returns ErrClosed and that a second Close and
// Abort have no effect. It also checks that Local and Join refuse numbers of ranks out of range.
func TestUseAfterClose(t *testing.T) {
	c := local(t, 1, tutti.Config{})[0]
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("the second Close: %v", err)
	}
	c.Abort(nil)
	_, start := c.Batch().Barrier().Start(t.Context())
	_, split := c.Split(t.Context(), 0, 0)
	for name, err := range map[string]error{
		"Barrier": c.Barrier(t.Context()), "Send": c.Send(t.Context(), 0, tutti.Of([]int{1}), 0),
		"Start": start, "Split": split, "Err": c.Err(),
	} {
		if !errors.Is(err, tutti.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (*tutti.Comm)(nil).Close(); err != nil {
		t.Errorf("Close of nil: %v", err)
	}
	for _, n := range []int{math.MinInt, -1, 0, 1<<16 + 1, math.MaxInt} {
		if _, err := tutti.Local(n, tutti.Config{}); !errors.Is(err, tutti.ErrInvalid) {
			t.Errorf("Local(%d): %v", n, err)
		}
		cfg := tutti.Config{Size: n, Addr: "127.0.0.1:1"}
		if _, err := tutti.Join(t.Context(), cfg); n != 0 && !errors.Is(err, tutti.ErrInvalid) { // 0: the environment determines the size
			t.Errorf("Join of %d ranks: %v", n, err)
		}
	}
}

// TestMismatchOfGoroutines has two goroutines of rank 0 call in another order than rank 1. The error
// names the remedy for goroutines.
func TestMismatchOfGoroutines(t *testing.T) {
	called := make(chan struct{})
	all(t, local(t, 2, tutti.Config{}), func(ctx context.Context, c *tutti.Comm) error {
		if c.Rank() == 1 {
			<-called
			return wantRemedy(c.AllReduce(ctx, tutti.Of([]int{1}), tutti.Sum), false)
		}
		barrier, sum := make(chan error, 1), make(chan error, 1)
		go func() { barrier <- c.Barrier(ctx) }()
		for c.Seq() < 1 && ctx.Err() == nil {
			runtime.Gosched()
		}
		go func() { sum <- c.AllReduce(ctx, tutti.Of([]int{1}), tutti.Sum) }()
		for c.Seq() < 2 && ctx.Err() == nil {
			runtime.Gosched()
		}
		close(called)
		return errors.Join(wantRemedy(<-barrier, true), wantRemedy(<-sum, true))
	})
}

// wantRemedy returns an error unless err is ErrMismatch, with the remedy for goroutines if there is one.
func wantRemedy(err error, remedy bool) error {
	if !errors.Is(err, tutti.ErrMismatch) || strings.Contains(err.Error(), "use a Comm for each (Dup)") != remedy {
		return fmt.Errorf("want a mismatch: %w", err)
	}
	return nil
}
