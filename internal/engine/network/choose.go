package network

import (
	"math"

	"github.com/tutti-go/tutti/internal/engine"
)

// crossover is an algorithm and the largest data for which it is chosen: maxBytes
// plus perRank for every rank. The size is the one that the fingerprint counts.
type crossover struct {
	algorithm         Algorithm
	maxBytes, perRank int
}

// unlimited, as crossover.maxBytes, is no upper limit.
const unlimited = math.MaxInt

// maxFusedBytes is the largest total size, in bytes, of small AllReduces that run
// as one step.
const maxFusedBytes = 32 << 10

// The tables of algorithms, by verb, in order of size. BenchmarkAlgorithms runs
// every algorithm of a verb over a range of sizes in memory, where doubling and
// trees win for small data and algorithms that move each byte once win for large
// data. Memory has almost no latency, so the limits are estimates for a network.
var (
	crossovers = [...][]crossover{
		engine.AllReduce:     {{Doubling, 8 << 10, 0}, {Halving, 128 << 10, 16 << 10}, {Ring, unlimited, 0}},
		engine.Reduce:        {{Tree, 64 << 10, 0}, {Ring, unlimited, 0}},
		engine.Broadcast:     {{Tree, 128 << 10, 0}, {Chain, unlimited, 0}},
		engine.AllGather:     {{Bruck, 8 << 10, 0}, {Ring, unlimited, 0}},
		engine.ReduceScatter: {{Halving, 4 << 10, 0}, {Ring, unlimited, 0}},
		engine.Gather:        {{Tree, 4 << 10, 0}, {Direct, unlimited, 0}},
		engine.Scatter:       {{Tree, 4 << 10, 0}, {Direct, unlimited, 0}},
		engine.AllToAll:      {{Bruck, 0, 512}, {Direct, unlimited, 0}},
		engine.Scan:          {{Doubling, 64 << 10, 16 << 10}, {Chain, unlimited, 0}},
		engine.ExScan:        {{Doubling, 64 << 10, 16 << 10}, {Chain, unlimited, 0}},
		engine.Barrier:       {{Dissemination, unlimited, 0}},
		engine.Split:         {{Bruck, unlimited, 0}},
		engine.Dup:           {{Dissemination, unlimited, 0}},
		engine.Alloc:         {{Dissemination, unlimited, 0}},
	}
	// orderedCrossovers is for reductions whose result depends on the order of the
	// sources.
	orderedCrossovers = [...][]crossover{
		engine.AllReduce:     {{Bruck, 2 << 10, 0}, {Direct, unlimited, 0}},
		engine.Reduce:        {{Linear, 4 << 10, 0}, {Direct, unlimited, 0}},
		engine.ReduceScatter: {{Direct, unlimited, 0}},
		engine.Scan:          {{Bruck, 2 << 10, 0}, {Chain, unlimited, 0}},
		engine.ExScan:        {{Bruck, 2 << 10, 0}, {Chain, unlimited, 0}},
	}
	// unevenAlgorithms is for the forms whose counts differ per rank.
	unevenAlgorithms = [...]Algorithm{
		engine.AllGather: Ring, engine.ReduceScatter: Direct, engine.Gather: Direct, engine.Scatter: Direct,
		engine.AllToAll: Direct,
	}
)

// choose returns the algorithm for a call. All ranks compute the same result,
// because it follows from the fingerprint, the number of ranks, and options that
// are equal on all ranks.
func (o *Options) choose(s engine.Fingerprint, ranks int) Algorithm {
	if s.Uneven {
		return unevenAlgorithms[s.Verb]
	}
	table := crossovers[s.Verb]
	inOrder := o.Reproducible && s.ReduceOp.OrderMatters(s.Type)
	if inOrder {
		table = orderedCrossovers[s.Verb]
	}
	if forced := o.Algorithms.of(s.Verb); forced != 0 && canDo(s.Verb, forced, inOrder) {
		return forced
	}
	bytes := int(s.Count) * s.Type.Size()
	if s.Verb == engine.AllReduce && !inOrder && ranks&(ranks-1) == 0 && bytes > table[0].maxBytes {
		return Halving // moves as little data as the ring, in fewer rounds
	}
	for _, r := range table {
		if r.maxBytes == unlimited || bytes <= r.maxBytes+r.perRank*ranks {
			return r.algorithm
		}
	}
	return 0
}

// canDo reports whether the tables list an algorithm for a verb.
func canDo(v engine.Verb, a Algorithm, inOrder bool) bool {
	table := crossovers[v]
	if inOrder {
		table = orderedCrossovers[v]
	}
	for _, r := range table {
		if r.algorithm == a {
			return true
		}
	}
	// The ordered algorithms can also be used where any order is correct.
	return !inOrder && v.Reduces() && canDo(v, a, true)
}

// of returns the algorithm that is forced for a verb, or zero.
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
	case engine.Scan, engine.ExScan:
		return a.Scan
	}
	return 0
}
