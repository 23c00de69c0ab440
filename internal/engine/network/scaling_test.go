package network

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// What the prediction rests on. The first is an assumption about a network, the
// others are measured: see docs/results/cpu.md.
const (
	wireDelay  = 10e-6  // seconds from host to host, cards and switch
	stepCost   = 3.5e-6 // of one exchange, in the kernel and here
	coreRate   = 3.4e9  // bytes a second that one core sends while it receives as many
	reduceRate = 10e9   // bytes a second that it reduces as they arrive
)

// predict is how long an AllReduce takes by the steps of its algorithm, and no
// algorithm can take less than the bound: everybody must hear of everybody, and
// all but one part of the data must arrive twice.
func predict(way Algorithm, n int, bytes, link float64) (took, bound float64) {
	log := bits.Len(uint(n - 1))
	step := func(b float64) float64 { return wireDelay + stepCost + b/min(link, coreRate) }
	reduce := func(b float64) float64 { return step(b) + b/reduceRate }
	switch way {
	case Doubling:
		took = float64(log) * reduce(bytes)
	case Halving:
		for i := 1; i <= log; i++ {
			took += reduce(bytes/float64(int(1)<<i)) + step(bytes/float64(int(1)<<i))
		}
	case Ring:
		took = float64(n-1) * (reduce(bytes/float64(n)) + step(bytes/float64(n)))
	}
	return took, max(float64(log)*(wireDelay+stepCost), 2*float64(n-1)/float64(n)*bytes/link)
}

// TestScaling shows, with -v, what AllReduce costs on networks that are not here.
func TestScaling(t *testing.T) {
	var o Options
	for _, gbit := range []float64{10, 100} {
		var b strings.Builder
		fmt.Fprintf(&b, "\n| %v Gbit/s, ranks | bytes | algorithm | predicted | bound | ratio |\n| --- | --- | --- | --- | --- | --- |\n", gbit)
		for _, n := range []int{8, 64, 256, 1024} {
			for _, bytes := range []int64{4, 64 << 10, 1 << 20, 64 << 20} {
				way := o.choose(engine.Sig{Verb: engine.AllReduce, Red: engine.Sum, Type: kernel.Float32, Count: bytes / 4}, n)
				took, bound := predict(way, n, float64(bytes), gbit*1e9/8)
				if took < bound {
					t.Errorf("%v, %d ranks, %d bytes: %v, the bound is %v", way, n, bytes, took, bound)
				}
				round := func(s float64) time.Duration { return time.Duration(s * 1e9).Round(time.Microsecond) }
				fmt.Fprintf(&b, "| %d | %d | %v | %v | %v | %.2f |\n", n, bytes, way, round(took), round(bound), took/bound)
			}
		}
		t.Log(b.String())
	}
}
