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

// Parameters of the model. linkLatency is an assumption about a network;
// docs/results/cpu.md has the measurements of the others.
const (
	linkLatency = 10e-6  // seconds from host to host, through network cards and switch
	stepCost    = 3.5e-6 // seconds of one exchange, in the kernel and in the engine
	coreRate    = 3.4e9  // bytes per second that one core sends while it receives as many
	reduceRate  = 10e9   // bytes per second that one core reduces on arrival
)

// predict returns the time that an AllReduce takes by the rounds of its algorithm,
// and a lower bound for all algorithms, in seconds. The bound: every rank needs
// data from every other rank, and all but one part of the data must be transferred
// twice.
func predict(alg Algorithm, n int, bytes, link float64) (took, bound float64) {
	log := bits.Len(uint(n - 1))
	step := func(b float64) float64 { return linkLatency + stepCost + b/min(link, coreRate) }
	reduce := func(b float64) float64 { return step(b) + b/reduceRate }
	switch alg {
	case Doubling:
		took = float64(log) * reduce(bytes)
	case Halving:
		for i := 1; i <= log; i++ {
			took += reduce(bytes/float64(int(1)<<i)) + step(bytes/float64(int(1)<<i))
		}
	case Ring:
		took = float64(n-1) * (reduce(bytes/float64(n)) + step(bytes/float64(n)))
	}
	return took, max(float64(log)*(linkLatency+stepCost), 2*float64(n-1)/float64(n)*bytes/link)
}

// TestScaling logs, with -v, the predicted times of AllReduce on large networks. It fails if a prediction is
// below the bound. Nothing is sent.
func TestScaling(t *testing.T) {
	var o Options
	for _, gbit := range []float64{10, 100} {
		var b strings.Builder
		fmt.Fprintf(&b, "\n| %v Gbit/s, ranks | bytes | algorithm | predicted | bound | ratio |\n| --- | --- | --- | --- | --- | --- |\n", gbit)
		for _, n := range []int{8, 64, 256, 1024} {
			for _, bytes := range []int64{4, 64 << 10, 1 << 20, 64 << 20} {
				alg := o.choose(engine.Fingerprint{Verb: engine.AllReduce, ReduceOp: engine.Sum, Type: kernel.Float32, Count: bytes / 4}, n)
				took, bound := predict(alg, n, float64(bytes), gbit*1e9/8)
				if took < bound {
					t.Errorf("%v, %d ranks, %d bytes: %v, the bound is %v", alg, n, bytes, took, bound)
				}
				round := func(s float64) time.Duration { return time.Duration(s * 1e9).Round(time.Microsecond) }
				fmt.Fprintf(&b, "| %d | %d | %v | %v | %v | %.2f |\n", n, bytes, alg, round(took), round(bound), took/bound)
			}
		}
		t.Log(b.String())
	}
}
