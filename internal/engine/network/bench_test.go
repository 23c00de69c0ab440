package network

import (
	"context"
	"fmt"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/transport/mem"
)

// BenchmarkAlgorithms compares the algorithms of each verb: see choose.go.
func BenchmarkAlgorithms(b *testing.B) {
	for v, ladder := range ladders {
		verb := engine.Verb(v)
		if verb < engine.AllReduce || verb > engine.AllToAll {
			continue
		}
		list := ladder
		if v < len(ordered) {
			list = append(list[:len(list):len(list)], ordered[v]...)
		}
		for _, ranks := range []int{4, 8} {
			for bytes := 64; bytes <= 4<<20; bytes *= 4 {
				for _, r := range list {
					b.Run(fmt.Sprintf("%v/ranks=%d/bytes=%d/%v", verb, ranks, bytes, r.use), func(b *testing.B) {
						benchmark(b, verb, r.use, ranks, bytes)
					})
				}
			}
		}
	}
}

func benchmark(b *testing.B, v engine.Verb, way Algorithm, ranks, bytes int) {
	opt := Options{Algorithms: Algorithms{way, way, way, way, way, way, way, way}}
	engines := world(opt, mem.Options{})(b, ranks)
	b.SetBytes(int64(bytes))
	b.ResetTimer()
	errs := onAll(b, engines, func(ctx context.Context, e engine.Engine) error {
		one, all := make([]float32, bytes/4), make([]float32, ranks*bytes/4)
		c := engine.Call{Verb: v, Red: engine.Sum, Src: mem32(one), Dst: mem32(make([]float32, bytes/4))}
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
