package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
	"github.com/tutti-go/tutti/internal/fakegpu"
)

// TestLateDriver makes a call of NCCL hang until after Close. Waiting operations fail with ErrTimeout,
// Close returns, and a dump can be made. When the call returns, nothing accesses the memory that Close
// has unmapped, and everything is freed.
func TestLateDriver(t *testing.T) {
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	if testing.Short() {
		t.Skip("Close waits 8 s for the driver")
	}
	for name, blocking := range map[string]bool{"batches": false, "blocking": true} {
		t.Run(name, func(t *testing.T) { lateDriver(t, blocking) })
	}
}

// lateDriver runs TestLateDriver on two ranks, each in a goroutine. Rank 0's ncclSend hangs in a goroutine of
// its own until the test calls control.Release, after Close has returned with an error. If blocking is set,
// that goroutine makes a blocking call, otherwise a Batch.
func lateDriver(t *testing.T, blocking bool) {
	t.Cleanup(control.Reset)
	before := control.AllLive()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	addr := l.Addr().String()
	ok(t, l.Close())
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	rank := func(r int) (err error) {
		c, err := tutti.Join(ctx, tutti.Config{Rank: r, Size: 2, Addr: addr, Timeout: 800 * time.Millisecond, Device: gpu.Auto()})
		if err != nil {
			return err
		}
		defer func() {
			if e := c.Close(); r == 1 {
				err = errors.Join(err, e)
			}
		}()
		dev, err := cuda.Open(r, nil)
		if err != nil {
			return err
		}
		defer dev.Close()
		x, err := cuda.Alloc[float32](dev, 100)
		if err != nil {
			return err
		}
		defer free(x)
		// In this ScatterV only rank 0 calls ncclSend, and only for rank 1's part.
		low, err1 := x.Slice(0, 40)
		high, err2 := x.Slice(40, 100)
		if err := first(err1, err2); err != nil {
			return err
		}
		parts := []tutti.Buffer{gpu.Of(low), gpu.Of(high)}
		dst := parts[r]
		if r == 1 {
			parts = nil
		}
		// The kinds of operations are known now: a blocking call runs on its caller's goroutine.
		host := []float32{1}
		if err := first(x.Fill(1), c.ScatterV(ctx, dst, parts, 0), c.Broadcast(ctx, gpu.Of(x), 0), c.Barrier(ctx)); err != nil {
			return err
		}
		if r == 1 {
			if err := c.ScatterV(ctx, dst, parts, 0); !errors.Is(err, tutti.ErrTimeout) {
				return fmt.Errorf("rank 1: %w", err)
			}
			return nil
		}
		fired := control.Fired()
		control.Fail("ncclSend", 1, fakegpu.Hang)
		stuck := make(chan error, 1)
		go func() {
			if blocking {
				stuck <- c.ScatterV(ctx, dst, parts, 0)
				return
			}
			w, err := c.Batch().ScatterV(dst, parts, 0).Start(ctx)
			stuck <- first(err, w.Wait(ctx))
		}()
		for control.Fired() == fired {
			time.Sleep(time.Millisecond)
		}
		device, err1 := c.Batch().Broadcast(gpu.Of(x), 0).Start(ctx)
		cpu, err2 := c.Batch().AllReduce(tutti.Of(host), tutti.Max).Start(ctx)
		if err := first(err1, err2); err != nil {
			return err
		}
		for _, w := range []tutti.Work{device, cpu} {
			if err := w.Wait(ctx); !errors.Is(err, tutti.ErrTimeout) {
				return fmt.Errorf("an operation behind the one that hangs: %w", err)
			}
		}
		closed := c.Close()
		if err := c.Dump(io.Discard); err != nil {
			return err
		}
		control.Release()
		if closed == nil {
			return errors.New("Close did not say that the driver had not returned")
		}
		if err := <-stuck; !errors.Is(err, tutti.ErrTimeout) {
			return fmt.Errorf("the operation that hung: %w", err)
		}
		return nil
	}
	errs := make([]error, 2)
	var ranks sync.WaitGroup
	for r := range errs {
		ranks.Go(func() { errs[r] = rank(r) })
	}
	ranks.Wait()
	ok(t, errs...)
	for begin := time.Now(); control.Left(before); time.Sleep(time.Millisecond) {
		if time.Since(begin) > deadline {
			t.Errorf("left behind: %v, before: %v", control.AllLive(), before)
			return
		}
	}
}
