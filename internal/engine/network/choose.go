package network

import (
	"math"

	"github.com/tutti-go/tutti/internal/engine"
)

// A rung is an algorithm and the largest data that it is chosen for: most
// bytes, and perRank more for every rank. The bytes are those that the
// fingerprint counts.
type rung struct {
	use           Algorithm
	most, perRank int
}

const rest = math.MaxInt

// fuseMost is how many bytes of small AllReduces are carried out as one.
const fuseMost = 32 << 10

// The crossover points. BenchmarkAlgorithms runs every algorithm of a verb over
// a range of sizes, on 4 and 8 ranks in memory: there doubling and trees win up
// to about 8 KiB, and ways that move each byte once beyond 64 to 256 KiB. Memory
// has no latency to speak of, so the points between the rungs are estimates
// until they are measured on a network.
var (
	ladders = [...][]rung{
		engine.AllReduce:     {{Doubling, 8 << 10, 0}, {Halving, 128 << 10, 16 << 10}, {Ring, rest, 0}},
		engine.Reduce:        {{Tree, 64 << 10, 0}, {Ring, rest, 0}},
		engine.Broadcast:     {{Tree, 128 << 10, 0}, {Chain, rest, 0}},
		engine.AllGather:     {{Bruck, 8 << 10, 0}, {Ring, rest, 0}},
		engine.ReduceScatter: {{Halving, 4 << 10, 0}, {Ring, rest, 0}},
		engine.Gather:        {{Tree, 4 << 10, 0}, {Direct, rest, 0}},
		engine.Scatter:       {{Tree, 4 << 10, 0}, {Direct, rest, 0}},
		engine.AllToAll:      {{Bruck, 0, 512}, {Direct, rest, 0}},
		engine.Barrier:       {{Dissemination, rest, 0}},
		engine.Split:         {{Bruck, rest, 0}},
		engine.Dup:           {{Dissemination, rest, 0}},
		engine.Alloc:         {{Dissemination, rest, 0}},
	}
	// ordered is for reductions whose bits depend on the order.
	ordered = [...][]rung{
		engine.AllReduce:     {{Bruck, 2 << 10, 0}, {Direct, rest, 0}},
		engine.Reduce:        {{Linear, 4 << 10, 0}, {Direct, rest, 0}},
		engine.ReduceScatter: {{Direct, rest, 0}},
	}
	// uneven is for the forms in which shares have different sizes.
	uneven = [...]Algorithm{
		engine.AllGather: Ring, engine.ReduceScatter: Direct, engine.Gather: Direct, engine.Scatter: Direct,
		engine.AllToAll: Direct,
	}
)

// choose decides how a call is carried out. All ranks come to the same result,
// because it follows from the fingerprint.
func (o *Options) choose(s engine.Sig, ranks int) Algorithm {
	if s.Uneven {
		return uneven[s.Verb]
	}
	ladder := ladders[s.Verb]
	inOrder := o.Reproducible && s.Red.OrderMatters(s.Type)
	if inOrder {
		ladder = ordered[s.Verb]
	}
	if forced := o.Algorithms.of(s.Verb); forced != 0 && canDo(s.Verb, forced, inOrder) {
		return forced
	}
	bytes := int(s.Count) * s.Type.Size()
	if s.Verb == engine.AllReduce && !inOrder && ranks&(ranks-1) == 0 && bytes > ladder[0].most {
		return Halving // moves as little as the ring, in fewer steps
	}
	for _, r := range ladder {
		if r.most == rest || bytes <= r.most+r.perRank*ranks {
			return r.use
		}
	}
	return 0
}

// canDo reports whether an algorithm is listed for a verb.
func canDo(v engine.Verb, a Algorithm, inOrder bool) bool {
	list := ladders[v]
	if inOrder {
		list = ordered[v]
	}
	for _, r := range list {
		if r.use == a {
			return true
		}
	}
	// The ordered ways are ways, too, where any order will do.
	return !inOrder && v.Reduces() && canDo(v, a, true)
}

func (a *Algorithms) of(v engine.Verb) Algorithm {
	switch v {
	case engine.AllReduce:
		return a.AllReduce
	case engine.Reduce:
		return a.Reduce
	case engine.Broadcast:
		return a.Broadcast
	case engine.AllGather:
		return a.AllGather
	case engine.ReduceScatter:
		return a.ReduceScatter
	case engine.Gather:
		return a.Gather
	case engine.Scatter:
		return a.Scatter
	case engine.AllToAll:
		return a.AllToAll
	}
	return 0
}
