package engine

import "runtime"

// A ProxyCPUReserver is an Engine that knows the number of CPUs of its ranks. An engine that
// contains other engines forwards the call with ReserveProxyCPUs.
type ProxyCPUReserver interface {
	// ReserveProxyCPUs tells the engine that each rank has a busy-polling NCCL proxy thread.
	// It reports whether the host has CPUs for all ranks and all proxy threads. If so, waiting
	// ranks spin or sleep but do not yield: after a yield to a proxy thread, the scheduler may
	// return the CPU only a timeslice later. It is called before any Run.
	ReserveProxyCPUs() (enough bool)
}

// ReserveProxyCPUs tells e that each rank has a busy-polling NCCL proxy thread. It reports
// whether the host has CPUs for all ranks and all proxy threads.
func ReserveProxyCPUs(e Engine) (enough bool) {
	if r, ok := e.(ProxyCPUReserver); ok {
		return r.ReserveProxyCPUs()
	}
	hosts, ranks := e.SameHost(), 0
	for _, h := range hosts {
		if h == hosts[e.Rank()] {
			ranks++
		}
	}
	return 2*ranks <= runtime.NumCPU()
}
