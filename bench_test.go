package tutti_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/kernel"
)

// BenchmarkAllReduceSmall reports the median time of one AllReduce between two
// ranks, each locked to a thread.
func BenchmarkAllReduceSmall(b *testing.B) {
	for _, bytes := range []int{4, 64, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", bytes), func(b *testing.B) {
			b.ReportAllocs()
			times := make([]time.Duration, b.N)
			// A context that can be cancelled, as a program would use.
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			err := tutti.RunLocal(ctx, 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				buf := make([]float32, bytes/4)
				for range 1000 {
					if err := c.AllReduce(ctx, tutti.Of(buf), tutti.Sum); err != nil {
						return err
					}
				}
				if c.Rank() == 0 {
					b.ResetTimer()
				}
				for i := range b.N {
					for j := range buf {
						buf[j] = float32(c.Rank() + i%100)
					}
					start := time.Now()
					if err := c.AllReduce(ctx, tutti.Of(buf), tutti.Sum); err != nil {
						return err
					}
					if c.Rank() == 0 {
						times[i] = time.Since(start)
					}
					if want := float32(1 + 2*(i%100)); buf[0] != want || buf[len(buf)-1] != want {
						return fmt.Errorf("got %v and %v, want %v", buf[0], buf[len(buf)-1], want)
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2])/1e3, "p50-us")
			b.ReportMetric(float64(times[len(times)*99/100])/1e3, "p99-us")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkAllReduceFloor compares a large AllReduce between two ranks with its
// floor: the same kernel and copies on the same memory in the same order, without
// any wait. The two alternate; the medians are compared.
func BenchmarkAllReduceFloor(b *testing.B) {
	for _, mib := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprintf("MiB=%d", mib), func(b *testing.B) {
			n := mib << 20 / 4
			comms, err := tutti.Local(2, tutti.Config{})
			if err != nil {
				b.Fatal(err)
			}
			bufs := [2][]float32{make([]float32, n), make([]float32, n)}
			rounds := max(7, b.N)
			var op, floor []time.Duration
			for round := range rounds {
				for r, buf := range bufs {
					for i := range buf {
						buf[i] = float32(r + i%1000)
					}
				}
				op = append(op, runBoth(func(r int) {
					if err := comms[r].AllReduce(b.Context(), tutti.Of(bufs[r]), tutti.Sum); err != nil {
						b.Error(err)
					}
				}))
				for r, buf := range bufs {
					for i, got := range buf {
						if want := float32(1 + 2*(i%1000)); got != want {
							b.Fatalf("round %d, rank %d, element %d: %v, want %v", round, r, i, got, want)
						}
					}
				}
				floor = append(floor, runBoth(func(r int) { unsynchronised(&bufs, r) }))
			}
			for _, c := range comms {
				c.Close()
			}
			slices.Sort(op)
			slices.Sort(floor)
			t, f := op[rounds/2], floor[rounds/2]
			b.ReportMetric(float64(t)/1e6, "ms")
			b.ReportMetric(float64(f)/1e6, "floor-ms")
			b.ReportMetric(float64(t)/float64(f), "x-floor")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// runBoth runs f for two ranks at the same time, each on a goroutine that is locked to a thread, and returns
// the longer duration.
func runBoth(f func(r int)) time.Duration {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(2)
	for r := range 2 {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-start
			f(r)
		})
	}
	ready.Wait()
	began := time.Now()
	close(start)
	done.Wait()
	return time.Since(began)
}

// unsynchronised does rank r's part of an AllReduce of two ranks without waiting
// for the other rank.
func unsynchronised(bufs *[2][]float32, r int) {
	const piece = 128 << 10 / 4
	n := len(bufs[0]) / 2
	at := func(buf []float32, i int) unsafe.Pointer { return unsafe.Pointer(&buf[i]) }
	mine, other := bufs[r], bufs[1-r]
	for i := 0; i < n; i += piece {
		lo := r*n + i
		m := min(piece, n-i)
		kernel.Reduce(at(mine, lo), at(bufs[0], lo), at(bufs[1], lo), m, kernel.Float32, kernel.Sum)
		lo = (1-r)*n + i
		kernel.Copy(at(mine, lo), at(other, lo), 4*m)
	}
}

// BenchmarkStopTheWorld reports the longest stop of the world while two ranks run AllReduce on 256 MiB and
// rank 2 runs the garbage collector until the others have called Barrier.
func BenchmarkStopTheWorld(b *testing.B) {
	const name = "/sched/pauses/total/gc:seconds"
	read := func() *metrics.Float64Histogram {
		s := []metrics.Sample{{Name: name}}
		metrics.Read(s)
		h := s[0].Value.Float64Histogram()
		return &metrics.Float64Histogram{Counts: slices.Clone(h.Counts), Buckets: h.Buckets}
	}
	before := read()
	collections := 0
	err := tutti.RunLocal(b.Context(), 3, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		color := 0
		if c.Rank() == 2 {
			color = 1
		}
		pair, err := c.Split(ctx, color, 0)
		if err != nil {
			return err
		}
		defer pair.Close()
		if c.Rank() == 2 {
			over, err := c.Batch().Barrier().Start(ctx)
			if err != nil {
				return err
			}
			for !over.Over() {
				runtime.GC()
				collections++
			}
			return over.Wait(ctx)
		}
		buf := make([]float32, 256<<20/4)
		for range max(8, b.N) {
			if err := pair.AllReduce(ctx, tutti.Of(buf), tutti.Sum); err != nil {
				return err
			}
		}
		return c.Barrier(ctx)
	})
	if err != nil {
		b.Fatal(err)
	}
	after := read()
	longest, pauses := 0.0, uint64(0)
	for i := range after.Counts {
		if d := after.Counts[i] - before.Counts[i]; d > 0 {
			pauses += d
			longest = after.Buckets[i+1]
			if math.IsInf(longest, 1) {
				longest = after.Buckets[i]
			}
		}
	}
	b.ReportMetric(longest*1e3, "longest-stop-ms")
	b.ReportMetric(float64(pauses), "stops")
	b.ReportMetric(float64(collections), "collections")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkFailure reports the time from a failure's cause to the error on the last of eight ranks, of which
// seven are blocked on goroutines of their own. The benchmark's goroutine is rank 0, which causes the
// failure.
func BenchmarkFailure(b *testing.B) {
	const ranks = 8
	for _, elems := range []int{1, 1 << 20} {
		for name, fault := range map[string]func(ctx context.Context, c *tutti.Comm) error{
			"mismatch": func(ctx context.Context, c *tutti.Comm) error {
				return c.AllReduce(ctx, tutti.Of(make([]int8, 3)), tutti.Sum)
			},
			"cancel": func(ctx context.Context, c *tutti.Comm) error {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return c.Barrier(ctx)
			},
			"abort": func(_ context.Context, c *tutti.Comm) error { c.Abort(nil); return c.Err() },
			"leave": func(_ context.Context, c *tutti.Comm) error { return c.Close() },
		} {
			b.Run(fmt.Sprintf("%s/elems=%d", name, elems), func(b *testing.B) {
				rounds := max(20, b.N)
				var times []time.Duration
				for range rounds {
					comms, err := tutti.Local(ranks, tutti.Config{})
					if err != nil {
						b.Fatal(err)
					}
					var blocked, done sync.WaitGroup
					ends := make([]time.Time, ranks)
					blocked.Add(ranks - 1)
					for r := 1; r < ranks; r++ {
						done.Go(func() {
							buf := make([]float32, elems)
							blocked.Done()
							if err := comms[r].AllReduce(b.Context(), tutti.Of(buf), tutti.Sum); err == nil {
								b.Error("no error")
							}
							ends[r] = time.Now()
						})
					}
					blocked.Wait()
					// Long enough for the ranks to be parked, in most rounds.
					time.Sleep(2 * time.Millisecond)
					cause := time.Now()
					if err := fault(b.Context(), comms[0]); err == nil && name != "leave" {
						b.Error("no error")
					}
					done.Wait()
					times = append(times, slices.MaxFunc(ends, time.Time.Compare).Sub(cause))
					for _, c := range comms {
						c.Close()
					}
				}
				slices.Sort(times)
				b.ReportMetric(float64(times[rounds/2])/1e6, "p50-ms")
				b.ReportMetric(float64(times[rounds-1])/1e6, "max-ms")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkSendRecv exchanges 16 bytes between two goroutine ranks.
func BenchmarkSendRecv(b *testing.B) {
	err := tutti.RunLocal(b.Context(), 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		src, dst := make([]byte, 16), make([]byte, 16)
		for range b.N {
			if err := c.SendRecv(ctx, 1-c.Rank(), tutti.Of(src), 1-c.Rank(), tutti.Of(dst), 1); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}
