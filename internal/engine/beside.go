package engine

import "runtime"

// A Neighbour is an engine that knows how many processors its ranks have. Engines that
// contain others pass the call on, by Beside.
type Neighbour interface {
	// Beside says that each rank has a thread beside it that never rests, NCCL's, and
	// reports whether the host has processors for all ranks and all of those. If it has,
	// ranks that wait keep theirs, or sleep: who gives way to such a thread gets its
	// processor back late. It is called before any Run.
	Beside() (room bool)
}

// Beside tells an engine that a thread that never rests is beside each rank, and reports
// whether there are processors for all.
func Beside(e Engine) (room bool) {
	if n, ok := e.(Neighbour); ok {
		return n.Beside()
	}
	hosts, ranks := e.SameHost(), 0
	for _, h := range hosts {
		if h == hosts[e.Rank()] {
			ranks++
		}
	}
	return 2*ranks <= runtime.NumCPU()
}
