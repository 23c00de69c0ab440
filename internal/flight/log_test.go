package flight

import (
	"sync/atomic"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// BenchmarkSmall measures what recording adds to the smallest operation. The atomic
// swap stands for that of an operation: it waits for the stores before it.
func BenchmarkSmall(b *testing.B) {
	x := make([]float32, 1)
	m := engine.Mem{N: 1, Type: kernel.Float32}
	call := engine.Call{Verb: engine.AllReduce, Red: engine.Sum, Dst: m, Src: m}
	var word atomic.Uint64
	_ = x
	b.Run("nothing", func(b *testing.B) {
		for i := range b.N {
			word.Store(uint64(i))
			word.Store(uint64(i))
		}
	})
	b.Run("recorded", func(b *testing.B) {
		l := New()
		for i := range b.N {
			l.Begin(uint64(i+1), &call)
			word.Store(uint64(i))
			l.End(uint64(i+1), false)
			word.Store(uint64(i))
		}
	})
}
