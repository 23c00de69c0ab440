package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/proctest"
)

func TestStaged(t *testing.T) {
	clean(t)
	opt := enginetest.Options{RankOrder: true, Light: true, Ranks: []int{3}, Brief: 5}
	// The slots are so small that almost every operation has many loads.
	enginetest.Run(t, stagedWorld(16<<10), opt)
}

// TestStagedProcesses is TestStaged with a process for each rank, and slots in shared memory.
func TestStagedProcesses(t *testing.T) {
	for n := 2; n <= 3; n++ {
		if n == 3 && testing.Short() {
			t.Skip("more ranks take long")
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			for r, cmd := range processes(t, n, "staged suite") {
				if out, err := proctest.Finish(t, cmd); err != nil || !strings.Contains(out, "staged: ") {
					t.Errorf("rank %d: %v\n%s", r, err, out)
				}
			}
		})
	}
}

// TestStagedLostProcess kills a rank while the others wait for it.
func TestStagedLostProcess(t *testing.T) {
	for r, cmd := range processes(t, 3, "staged lost") {
		out, err := proctest.Finish(t, cmd)
		switch {
		case r == 2:
			if err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("the rank that was to be killed: %v\n%s", err, out)
			}
		case err != nil || !strings.Contains(out, "noticed") || !strings.Contains(out, "staged: "):
			t.Errorf("rank %d: %v\n%s", r, err, out)
		}
	}
}

// stagedRanks runs a program on two ranks, each on a goroutine, with floats on their devices and slots so
// small that each operation takes many loads. It closes the engines and returns the errors by rank.
func stagedRanks(t *testing.T, opt engine.DeviceOptions, program func(e *Engine, x *cuda.Slice[float32]) error) []error {
	t.Helper()
	clean(t)
	opt.HostStaging, opt.Slot = true, 1<<10
	engines := newEngines(t, 2, opt)
	errs := make([]error, len(engines))
	var wg sync.WaitGroup
	for r, e := range engines {
		wg.Go(func() {
			x, err := cuda.Alloc[float32](e.dev, 10_000)
			if err == nil {
				err = x.Fill(float32(r + 1))
			}
			if err == nil {
				err = program(e, x)
			}
			errs[r] = errors.Join(err, x.Free(), e.Close())
		})
	}
	wg.Wait()
	return errs
}

func sum(e *Engine, x *cuda.Slice[float32]) []engine.Call {
	m := deviceMem(e, x)
	return []engine.Call{{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: m, Dst: m}}
}

// TestStagedFaults lets a call of the driver fail on one of two ranks. Both ranks get ErrAborted that names
// the operation, later calls return the same error, and no resource leaks.
func TestStagedFaults(t *testing.T) {
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	const outOfMemory, launchFailed = 2, 719
	for _, f := range []struct {
		function  string
		nth, code int
	}{
		{"cuMemHostAlloc", 1, outOfMemory},
		{"cuMemcpyDtoHAsync_v2", 1, launchFailed},
		{"cuMemcpyDtoHAsync_v2", 17, launchFailed},
		{"cuMemcpyHtoDAsync_v2", 1, launchFailed},
		{"cuMemcpyHtoDAsync_v2", 30, launchFailed},
		{"cuEventRecord", 5, launchFailed},
		{"cuEventQuery", 7, launchFailed},
		{"cuStreamWaitEvent", 3, launchFailed},
	} {
		t.Run(fmt.Sprint(f.function, " ", f.nth), func(t *testing.T) {
			t.Cleanup(control.Reset)
			fired := control.Fired()
			errs := stagedRanks(t, engine.DeviceOptions{}, func(e *Engine, x *cuda.Slice[float32]) error {
				if e.Rank() == 0 {
					control.Fail(f.function, f.nth, f.code)
				}
				err := e.Engine.Run(t.Context(), 1, []engine.Call{{Verb: engine.Barrier}})
				if err == nil {
					err = e.Run(t.Context(), 2, sum(e, x))
				}
				if !errors.Is(err, engine.ErrAborted) || !strings.Contains(err.Error(), "AllReduce #2") {
					return fmt.Errorf("a driver that failed is reported as %w", err)
				}
				if again := e.Run(t.Context(), 3, sum(e, x)); again == nil || again.Error() != err.Error() {
					return fmt.Errorf("%w, and then %w", err, again)
				}
				return nil
			})
			ok(t, errs...)
			if control.Fired() == fired {
				t.Error("the fault did not happen")
			}
		})
	}
}

// TestStagedHeldBack orders an operation with a stream that is held back on rank 1. Rank 1's deadline ends
// the operation with ErrTimeout on both ranks, the stream continues, and no copy follows.
func TestStagedHeldBack(t *testing.T) {
	errs := stagedRanks(t, engine.DeviceOptions{}, func(e *Engine, x *cuda.Slice[float32]) error {
		s, err := e.dev.NewStream()
		if err != nil {
			return err
		}
		hold, err := cuda.AllocHost[uint32](e.dev, 1)
		if err != nil {
			return err
		}
		addr, err := hold.DevicePointer()
		if err != nil {
			return err
		}
		ctx := t.Context()
		// The first operation allocates pinned memory, for which the driver would wait for the
		// stream that is held back below.
		if err := e.Run(ctx, 1, sum(e, x)); err != nil {
			return err
		}
		if e.Rank() == 1 {
			if err := s.WaitValue(addr, 1); err != nil {
				return err
			}
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
		}
		err = launch(e, request{ctx: ctx, seq: 2, calls: sum(e, x), stream: s}).settle()
		if !errors.Is(err, engine.ErrTimeout) || !strings.Contains(err.Error(), "on rank 1") {
			return fmt.Errorf("the deadline of rank 1 is reported as %w", err)
		}
		hold.Data()[0] = 1
		got := make([]float32, x.Len())
		if err := errors.Join(s.Wait(t.Context()), x.CopyTo(got), s.Close(), hold.Free()); err != nil {
			return err
		}
		for _, v := range got {
			if v != 3 {
				return fmt.Errorf("rank %d: memory was written: %v", e.Rank(), v)
			}
		}
		return nil
	})
	ok(t, errs...)
}

// TestStagedWarns checks the count of staged calls, and that each rank logs staging once. mu guards text
// during the writes; the test reads text after both ranks have ended.
func TestStagedWarns(t *testing.T) {
	var mu sync.Mutex
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&lockedWriter{&mu, &text}, nil))
	errs := stagedRanks(t, engine.DeviceOptions{Logger: log}, func(e *Engine, x *cuda.Slice[float32]) error {
		for seq := range uint64(5) {
			if err := e.Run(t.Context(), seq+1, sum(e, x)); err != nil {
				return err
			}
		}
		host := engine.Call{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: memOf(make([]int64, 3), kernel.Int64)}
		host.Dst = host.Src
		if err := e.Run(t.Context(), 6, []engine.Call{host}); err != nil {
			return err
		}
		if n := e.Staged(); n != 5 {
			return fmt.Errorf("%d calls were counted", n)
		}
		return nil
	})
	ok(t, errs...)
	if n := strings.Count(text.String(), "HostStaging"); n != 2 {
		t.Errorf("%d warnings of two ranks:\n%s", n, text.String())
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// TestPlan checks that slabs do not overlap in a slot and that every element is in a slab.
func TestPlan(t *testing.T) {
	for _, verb := range []engine.Verb{engine.AllReduce, engine.AllGather, engine.AllToAll} {
		for _, slot := range []int{1024, slotBytes} {
			for _, n := range []int{0, 1, 1000, 1 << 20} {
				const size = 3
				s := &stage{size: size, slot: slot}
				m := engine.Mem{N: n, Type: kernel.Float32, Device: 1}
				calls := []engine.Call{{Verb: verb, Src: m, Dst: m}, {Verb: verb, Src: m.Slice(0, n/2), Dst: m.Slice(0, n/2)}}
				s.plan(&operation{calls: calls}, []int{n, n / 2})
				seen := map[*engine.Call]int{}
				for _, l := range s.loads {
					end := 0
					for _, p := range l {
						if p.at < end || p.lo != seen[p.call] || p.n < 1 {
							t.Fatalf("%v, slot %d: %+v after byte %d and element %d", verb, slot, p, end, seen[p.call])
						}
						end = p.at + width(verb, size)*p.n*p.t.Size()
						seen[p.call] += p.n
					}
					if end > slot {
						t.Fatalf("%v, slot %d: a load of %d bytes", verb, slot, end)
					}
				}
				if seen[&calls[0]] != n || seen[&calls[1]] != n/2 {
					t.Errorf("%v, slot %d: %v of %d elements", verb, slot, seen, n)
				}
			}
		}
	}
}
