package nccl_test

import (
	"testing"

	"github.com/tutti-go/tutti/nccl"
)

// BenchmarkAllReduce measures the host's time to enqueue, with one rank. On the fake GPU most of it is
// this package's own.
func BenchmarkAllReduce(b *testing.B) {
	w := newWorld(b, 1, nccl.Config{})
	c, s, x := w.comms[0], w.streams[0], nccl.Of(w.slices[0])
	b.ReportAllocs()
	for b.Loop() {
		if err := c.AllReduce(x, x, nccl.Sum, s); err != nil {
			b.Fatal(err)
		}
	}
	ok(b, s.Wait(b.Context()))
}
