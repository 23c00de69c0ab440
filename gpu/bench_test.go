package gpu_test

import (
	"context"
	"testing"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
	"github.com/tutti-go/tutti/internal/race"
)

// BenchmarkStart measures the caller's time to order an AllReduce with a stream and start it, with
// one rank. The fake GPU's own threads share the processors.
func BenchmarkStart(b *testing.B) {
	alone(b, func(ctx context.Context, c *tutti.Comm, s *cuda.Stream, x tutti.Buffer) {
		batch := c.Batch().On(s).AllReduce(x, tutti.Sum)
		const burst = 64
		starts := func() (w tutti.Work) {
			for range burst {
				var err error
				if w, err = batch.Start(ctx); err != nil {
					b.Fatal(err)
				}
			}
			return w
		}
		ok(b, starts().Wait(ctx)) // makes what later operations reuse
		for b.Loop() {
			w := starts()
			b.StopTimer()
			ok(b, w.Wait(ctx))
			b.StartTimer()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/burst, "ns/Start")
	})
}

// BenchmarkAllReduce measures a blocking AllReduce with one rank.
func BenchmarkAllReduce(b *testing.B) {
	alone(b, func(ctx context.Context, c *tutti.Comm, _ *cuda.Stream, x tutti.Buffer) {
		for b.Loop() {
			if err := c.AllReduce(ctx, x, tutti.Sum); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestCallsDoNotAllocate checks that collectives on device memory do not allocate after the first
// ones.
func TestCallsDoNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector pools drop what they are given")
	}
	alone(t, func(ctx context.Context, c *tutti.Comm, s *cuda.Stream, x tutti.Buffer) {
		ordered := c.Batch().On(s).AllReduce(x, tutti.Max)
		for name, f := range map[string]func() error{
			"AllReduce": func() error { return c.AllReduce(ctx, x, tutti.Max) },
			"Batch.On": func() error {
				w, err := ordered.Start(ctx)
				return first(err, w.Wait(ctx))
			},
		} {
			ok(t, f(), f(), f())
			if n := testing.AllocsPerRun(50, func() {
				if err := f(); err != nil {
					t.Error(err)
				}
			}); n != 0 {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	})
}

// alone runs a program on a Comm of one rank.
func alone(tb testing.TB, program func(ctx context.Context, c *tutti.Comm, s *cuda.Stream, x tutti.Buffer)) {
	tb.Helper()
	comms, err := tutti.Local(1, tutti.Config{Device: gpu.Device(0)})
	ok(tb, err)
	dev, err := cuda.Open(0, nil)
	ok(tb, err)
	s, err := dev.NewStream()
	ok(tb, err)
	x, err := cuda.Alloc[float32](dev, 256)
	ok(tb, err, x.Fill(1))
	program(tb.Context(), comms[0], s, gpu.Of(x))
	ok(tb, s.Wait(tb.Context()), comms[0].Close(), x.Free(), s.Close(), dev.Close())
}
