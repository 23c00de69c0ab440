package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/nccl"
)

// programs are run by ranks in goroutines and in processes, on the fake GPU and on the real library.
var programs = map[string]program{
	"types":    everyType,
	"verbs":    everyVerb,
	"groups":   groups,
	"premul":   premul,
	"split":    split,
	"memory":   memory,
	"signals":  signals,
	"order":    order,
	"nan":      nan,
	"finalize": finalize,
	"lost":     lost,
}

// split makes communicators of the even and the odd ranks, in reverse order, and one without the last
// rank.
func split(ctx context.Context, r *rank) error {
	sub, err := r.comm.Split(ctx, r.r%2, -r.r, nccl.Config{})
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer sub.Close()
	size := (r.n + 1 - r.r%2) / 2
	if sub.Size() != size || sub.Rank() != size-1-r.r/2 {
		return fmt.Errorf("rank %d of %d, want %d of %d", sub.Rank(), sub.Size(), size-1-r.r/2, size)
	}
	if err := sums(ctx, r, sub); err != nil {
		return err
	}
	color := 0
	if r.r == r.n-1 {
		color = nccl.NoColor
	}
	rest, err := r.comm.Split(ctx, color, 0, nccl.Config{})
	if err != nil || (rest == nil) != (color == nccl.NoColor) {
		return fmt.Errorf("%v, %w", rest, err)
	}
	if rest != nil {
		defer rest.Close()
		if err := sums(ctx, r, rest); err != nil {
			return err
		}
	}
	return sums(ctx, r, r.comm)
}

// sums checks an AllReduce on a communicator, and that the communicator has no asynchronous error.
func sums(ctx context.Context, r *rank, c *nccl.Comm) error {
	s, err := cuda.Alloc[int64](r.dev, 10)
	if err != nil {
		return err
	}
	defer free(s)
	got := make([]int64, 10)
	err = errors.Join(s.Fill(int64(c.Rank()+1)), c.AllReduce(nccl.Of(s), nccl.Of(s), nccl.Sum, r.stream), r.stream.Wait(ctx))
	if err = errors.Join(err, c.AsyncError()); err != nil {
		return err
	}
	if want := int64(c.Size() * (c.Size() + 1) / 2); s.CopyTo(got) != nil || got[9] != want {
		return fmt.Errorf("%d ranks sum to %d, want %d", c.Size(), got[9], want)
	}
	return nil
}

// memory uses NCCL's allocation, registration and windows. It returns nil early if this version of NCCL lacks
// them.
func memory(ctx context.Context, r *rank) error {
	s, err := nccl.Alloc[float32](r.lib, r.dev, 1<<16)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer free(s)
	reg, err := r.comm.Register(nccl.Of(s))
	if err != nil {
		return err
	}
	got := make([]float32, s.Len())
	err = errors.Join(s.Fill(1), r.comm.AllReduce(nccl.Of(s), nccl.Of(s), nccl.Sum, r.stream), r.stream.Wait(ctx), s.CopyTo(got), reg.Close(), reg.Close())
	if err != nil || got[1] != float32(r.n) {
		return fmt.Errorf("registered: %v, %w", got[1], err)
	}
	w, err := r.comm.NewWindow(ctx, nccl.Of(s), nccl.Symmetric)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if w.Supported() {
		if p, err := w.Pointer(); !missing(err) && (err != nil || p != s.Pointer()) {
			return fmt.Errorf("the window is at %#x: %w", p, err)
		}
	}
	err = errors.Join(s.Fill(2), r.comm.AllReduce(nccl.Of(s), nccl.Of(s), nccl.Sum, r.stream), r.stream.Wait(ctx), s.CopyTo(got), w.Close(), w.Close())
	if err != nil || got[1] != float32(2*r.n) {
		return fmt.Errorf("in a window: %v, %w", got[1], err)
	}
	return nil
}

// onGPU reports whether the libraries are the real ones. TestMain has refused a value that cannot be parsed.
func onGPU() bool {
	is, _ := fakegpu.Real()
	return is
}

// signals writes into the next rank's window and waits for two signals of the previous rank. It does nothing
// on one rank, without support in NCCL, or on one real GPU.
func signals(ctx context.Context, r *rank) error {
	v := nccl.Version{Major: 2, Minor: 29}
	if r.n == 1 || r.lib.Needs("signals", v) != nil || control == nil && onGPU() {
		return nil // ranks on one GPU have no common windows
	}
	s, err := nccl.Alloc[int32](r.lib, r.dev, 1024)
	if err != nil {
		return err
	}
	defer free(s)
	from, err := cuda.Alloc[int32](r.dev, 10)
	if err != nil {
		return err
	}
	defer free(from)
	if err := errors.Join(s.Fill(-1), from.Fill(int32(r.r))); err != nil {
		return err
	}
	w, err := r.comm.NewWindow(ctx, nccl.Of(s), nccl.Symmetric)
	if err != nil {
		return err
	}
	defer w.Close()
	next, previous := (r.r+1)%r.n, (r.r+r.n-1)%r.n
	err = errors.Join(r.comm.PutSignal(nccl.Of(from), next, w, 100, r.stream), r.comm.Signal(next, r.stream),
		r.comm.WaitSignal(previous, 2, r.stream), r.stream.Wait(ctx))
	got := make([]int32, 1024)
	if err = errors.Join(err, s.CopyTo(got)); err != nil {
		return err
	}
	if got[99] != -1 || got[100] != int32(previous) || got[109] != int32(previous) || got[110] != -1 {
		return fmt.Errorf("the window holds %v", got[98:112])
	}
	return sums(ctx, r, r.comm)
}

// order holds a fill back on a compute stream, runs a collective on another stream and reads on the
// first, ordered by events alone. It also runs without the events, to show that the check can fail.
func order(ctx context.Context, r *rank) error {
	compute, err := r.dev.NewStream()
	if err != nil {
		return err
	}
	defer compute.Close()
	gate, err := cuda.AllocHost[uint32](r.dev, 1)
	if err != nil {
		return err
	}
	defer free(gate)
	addr, err := gate.DevicePointer()
	if err != nil {
		return err
	}
	s, err := cuda.Alloc[float32](r.dev, 1000)
	if err != nil {
		return err
	}
	defer free(s)
	out, err := cuda.AllocHost[float32](r.dev, 1000)
	if err != nil {
		return err
	}
	defer free(out)
	// The first collective of a size may connect the ranks in a new way. NCCL may need a device without
	// waiting streams for that.
	b := nccl.Of(s)
	if err := errors.Join(s.Fill(0), r.comm.AllReduce(b, b, nccl.Sum, r.stream), r.stream.Wait(ctx)); err != nil {
		return err
	}
	for round := range uint32(20) {
		events := round%10 != 9
		step := func(err error, on bool, f func() error) error {
			if err != nil || !on {
				return err
			}
			return f()
		}
		err := s.Fill(-1)
		err = step(err, true, func() error { return compute.WaitValue(addr, round+1) })
		err = step(err, true, func() error { return s.FillOn(compute, float32(r.r+1)) })
		err = step(err, events, func() error { return r.stream.WaitStream(compute) })
		err = step(err, true, func() error { return r.comm.AllReduce(b, b, nccl.Sum, r.stream) })
		err = step(err, events, func() error { return compute.WaitStream(r.stream) })
		err = step(err, true, func() error { return s.CopyToOn(compute, out.Data()) })
		early := false
		if !events { // the collective runs while the fill is held back
			early = r.ends(ctx)
		}
		atomic.StoreUint32(&gate.Data()[0], round+1)
		if err := errors.Join(err, compute.Wait(ctx), r.stream.Wait(ctx)); err != nil {
			return err
		}
		right := out.Data()[999] == float32(r.n*(r.n+1)/2)
		if r.n > 1 && (right && early || !right && events) {
			return fmt.Errorf("events %v: the result is %v", events, out.Data()[999])
		}
		if !events && !early && !onGPU() {
			return errors.New("the collective has waited for another stream")
		}
	}
	return nil
}

// ends waits for the stream, for a limited time. Processes that share a GPU have few hardware queues, and
// a stream that is held back may block other streams in its queue.
func (r *rank) ends(ctx context.Context) bool {
	most := time.Minute
	if onGPU() {
		most = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return r.stream.Wait(ctx) == nil
}

// nan has NaN on one rank: the minimum and the maximum are those of the other ranks.
func nan(ctx context.Context, r *rank) error {
	for _, k := range kinds {
		if k.t != nccl.Float16 && k.t != nccl.BFloat16 && k.t != nccl.Float32 && k.t != nccl.Float64 {
			continue
		}
		for _, op := range []nccl.Op{nccl.Min, nccl.Max} {
			mine := []float64{math.NaN(), float64(r.r), math.NaN()}
			if r.r > 0 {
				mine[0] = 7
			}
			s, b, err := put(r, k, mine)
			if err != nil {
				return err
			}
			err = errors.Join(r.comm.AllReduce(b, b, op, r.stream), r.stream.Wait(ctx))
			got, e := get(s, k)
			if err := errors.Join(err, e, s.Free()); err != nil {
				return err
			}
			want := 0.0
			if op == nccl.Max {
				want = float64(r.n - 1)
			}
			if r.n > 1 && got[0] != 7 || got[1] != want || !math.IsNaN(got[2]) {
				return fmt.Errorf("%v %v: %v", k.t, op, got)
			}
		}
	}
	return nil
}

func finalize(ctx context.Context, r *rank) error {
	if err := errors.Join(sums(ctx, r, r.comm), r.comm.Finalize(ctx)); err != nil {
		return err
	}
	if err := sums(ctx, r, r.comm); !errors.Is(err, nccl.ErrClosed) {
		return fmt.Errorf("finalized: %w", err)
	}
	return nil
}

// lost kills the last rank's process while the others wait for it. The others poll AsyncError until it
// reports the loss, abort, and return nil. On real GPUs a timer's goroutine aborts after 5 s, because NCCL
// may hang inside the call.
func lost(ctx context.Context, r *rank) error {
	if err := sums(ctx, r, r.comm); err != nil {
		return err
	}
	if r.r == r.n-1 {
		p, err := os.FindProcess(os.Getpid())
		if err != nil {
			return err
		}
		_ = p.Kill()
		select {}
	}
	s, err := cuda.Alloc[float32](r.dev, 1<<20)
	if err != nil {
		return err
	}
	if control == nil {
		// Over sockets on one machine, NCCL may not notice for a minute, inside the call. The program
		// knows of the loss and aborts.
		defer time.AfterFunc(5*time.Second, func() { _ = r.comm.Abort(ctx) }).Stop()
	}
	// The call itself fails if NCCL has noticed by then.
	if err := r.comm.AllReduce(nccl.Of(s), nccl.Of(s), nccl.Sum, r.stream); err != nil && r.comm.AsyncError() == nil {
		return err
	}
	for r.comm.AsyncError() == nil {
		// The abort's error comes first.
		if done, err := r.stream.Done(); (done || err != nil) && r.comm.AsyncError() == nil {
			return fmt.Errorf("the collective ended without the lost rank: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("nobody noticed: %w", err)
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Println("noticed:", r.comm.AsyncError())
	return errors.Join(r.comm.Abort(ctx), r.stream.Wait(ctx), s.Free())
}
