package main

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/internal/kernel"
)

// floorOf returns the measurement of the floor of an operation on a transport, or nil if it is not
// defined. The help text defines the floor. The measurement runs in this process. It returns the
// sizes completed before an error or the end of ctx, together with this error.
func floorOf(o options, transport string) func(ctx context.Context) ([]sample, error) {
	var floor func(ctx context.Context, o options, bytes int) ([]int64, error)
	switch {
	case o.op != "allreduce":
		return nil
	case transport == "shm":
		floor = memoryFloor
	case o.ranks == 2:
		floor = wireFloor
	default:
		return nil
	}
	return func(ctx context.Context) ([]sample, error) {
		var all []sample
		for _, bytes := range o.sizes {
			times, err := floor(ctx, o, bytes)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return all, err
			}
			s := summary(times, 1)
			s.bytes = bytes
			all = append(all, s)
		}
		return all, nil
	}
}

// A line is a counter on cache lines of its own.
type line struct {
	n atomic.Int64
	_ [120]byte
}

// spinBarrier makes threads wait for each other. Each thread writes only its own
// line.
func spinBarrier(lines []line, me int, turn int64) {
	lines[me].n.Store(turn)
	for i := range lines {
		for lines[i].n.Load() < turn {
		}
	}
}

// runThreads runs f on n locked threads, in turns that begin together, until the budget is spent or
// ctx ends. It returns the duration of each turn on thread 0, the only thread that uses times.
// Thread 0 sets final; the other threads may already be in the next turn, so every thread does one
// more. The first turn touches the memory and does not count.
func runThreads(ctx context.Context, o options, n int, f func(me int)) []int64 {
	lines := make([]line, n)
	times := make([]int64, 0, maxIters)
	var final atomic.Int64 // the last turn
	final.Store(1 << 62)
	var threads sync.WaitGroup
	for me := range n {
		threads.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			spinBarrier(lines, me, 1)
			f(me)
			start, last := time.Now(), time.Duration(0)
			for turn := int64(2); turn <= final.Load(); turn++ {
				spinBarrier(lines, me, turn)
				f(me)
				if me != 0 {
					continue
				}
				end := time.Since(start)
				times = append(times, int64(end-last))
				last = end
				if len(times) >= minIters && (end > o.budget || len(times) == maxIters-1) || ctx.Err() != nil {
					final.CompareAndSwap(1<<62, turn+1) // the other threads may already be in the next turn
				}
			}
		})
	}
	threads.Wait()
	return times
}

// memoryFloor times threads that each read and write a buffer of their own, and a barrier. It
// returns no error: its caller checks ctx.
func memoryFloor(ctx context.Context, o options, bytes int) ([]int64, error) {
	const piece = 64 << 10 // small, so that the garbage collector need not wait
	n := min(o.ranks, runtime.NumCPU())
	bufs := make([][]float32, n)
	for i := range bufs {
		bufs[i] = make([]float32, (bytes/4*o.ranks+n-1)/n)
	}
	return runThreads(ctx, o, n, func(me int) {
		buf := bufs[me]
		for i := 0; i < len(buf); i += piece / 4 {
			p := unsafe.Pointer(&buf[i])
			kernel.Reduce(p, p, p, min(piece/4, len(buf)-i), kernel.Float32, kernel.Sum)
		}
	}), nil
}

// wireFloor times two threads that exchange as many bytes as two ranks must. Each thread writes
// only its own element of failed. A thread whose exchange fails does nothing in later turns.
func wireFloor(ctx context.Context, o options, bytes int) ([]int64, error) {
	ends, err := loopback()
	if err != nil {
		return nil, err
	}
	defer unix.Close(ends[0])
	defer unix.Close(ends[1])
	out, in := [2][]byte{}, [2][]byte{}
	for i := range ends {
		out[i], in[i] = make([]byte, bytes), make([]byte, bytes)
	}
	var failed [2]error
	times := runThreads(ctx, o, 2, func(me int) {
		if failed[me] == nil {
			failed[me] = exchange(ctx, ends[me], out[me], in[me])
		}
	})
	if failed[0] != nil {
		return nil, failed[0]
	}
	return times, failed[1]
}
