package network

import (
	"context"
	"fmt"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/transport/mem"
)

// BenchmarkAlgorithms compares the algorithms of each verb; see choose.go.
func BenchmarkAlgorithms(b *testing.B) {
	for v, table := range crossovers {
		verb := engine.Verb(v)
		if verb < engine.AllReduce || verb >= engine.Barrier {
			continue
		}
		list := table
		if v < len(orderedCrossovers) {
			list = append(list[:len(list):len(list)], orderedCrossovers[v]...)
		}
		for _, ranks := range []int{4, 8} {
			for bytes := 64; bytes <= 4<<20; bytes *= 4 {
				for _, r := range list {
					b.Run(fmt.Sprintf("%v/ranks=%d/bytes=%d/%v", verb, ranks, bytes, r.algorithm), func(b *testing.B) {
						benchmark(b, verb, r.algorithm, ranks, bytes)
					})
				}
			}
		}
	}
}

// benchmark runs one verb with one algorithm b.N times on goroutine ranks in memory. An error of any rank
// fails the benchmark.
func benchmark(b *testing.B, v engine.Verb, alg Algorithm, ranks, bytes int) {
	opt := Options{Algorithms: Algorithms{alg, alg, alg, alg, alg, alg, alg, alg, alg}}
	engines := world(opt, mem.Options{})(b, ranks)
	b.SetBytes(int64(bytes))
	b.ResetTimer()
	errs := onAll(b, engines, func(ctx context.Context, e engine.Engine) error {
		one, all := make([]float32, bytes/4), make([]float32, ranks*bytes/4)
		c := engine.Call{Verb: v, ReduceOp: engine.Sum, Src: mem32(one), Dst: mem32(make([]float32, bytes/4))}
		switch v {
		case engine.Broadcast:
			c.Dst = c.Src
		case engine.AllGather, engine.Gather:
			c.Dst = mem32(all)
		case engine.ReduceScatter, engine.Scatter:
			c.Src = mem32(all)
		case engine.AllToAll:
			c.Src, c.Dst = mem32(all), mem32(make([]float32, len(all)))
		}
		calls := []engine.Call{c}
		for i := range b.N {
			if err := e.Run(ctx, uint64(i+1), calls); err != nil {
				return err
			}
		}
		return nil
	})
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
}
