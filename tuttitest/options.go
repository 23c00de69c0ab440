package tuttitest

import (
	"io"
	"time"

	"github.com/tutti-go/tutti/internal/engine/network"
	"github.com/tutti-go/tutti/internal/sim"
)

// Options configure a simulation. All times are virtual. The zero value of every
// field but Ranks suits most tests.
type Options struct {
	// Ranks is the number of ranks, at most a few thousand.
	Ranks int
	// Newcomers are processes that join the running job, like those with
	// tutti.Config.Late: each calls Join at its time after the start, and waits
	// until the ranks call Grow. They are numbered from Ranks on, in faults and in
	// the Result. A replacement that is there from the start has the time zero.
	Newcomers []time.Duration
	// Seed determines every random choice.
	Seed uint64
	// Faults are the faults of the run.
	Faults []Fault

	// Timeout is tutti.Config.Timeout. Zero means five minutes; negative, no bound.
	Timeout time.Duration
	// ShrinkTimeout is tutti.Config.ShrinkTimeout. Zero means ten seconds.
	ShrinkTimeout time.Duration
	// Reproducible is tutti.Config.Reproducible.
	Reproducible bool
	// HostTimeout is how long a host may not answer before its rank counts as lost.
	// Zero means 30 s.
	HostTimeout time.Duration
	// Latency is the approximate one-way latency of a link. Zero means 20 us.
	Latency time.Duration
	// Bandwidth is the bandwidth of a link, in bytes per second. Zero means 12.5e9.
	Bandwidth float64
	// Limit is the time after which ranks that have not returned count as hung.
	// Zero means an hour.
	Limit time.Duration
	// Log receives a line for every event. Nil means no log.
	Log io.Writer

	broken bool // the store sets unconditionally instead of comparing; see sim.Options
}

// A Kind is the kind of a fault.
type Kind uint8

// The kinds of faults.
const (
	// Crash ends the rank's process. Its connections end; data that it has sent may
	// still arrive.
	Crash Kind = Kind(sim.Crash)
	// Vanish ends the rank's host: nothing more arrives from it.
	Vanish Kind = Kind(sim.Vanish)
	// Stall stops the rank's process, like SIGSTOP.
	Stall Kind = Kind(sim.Stall)
	// Cut ends the data connections between the rank and its Peers. Without Peers,
	// it ends the connection of the message that triggers it. If that message was
	// for the store, the request fails, although the store may have served it.
	Cut Kind = Kind(sim.Cut)
	// Partition cuts the rank and its Peers off from the other ranks. Messages that
	// are sent meanwhile arrive after the partition, if it ends before
	// HostTimeout has passed. The store is on the side of the other ranks.
	Partition Kind = Kind(sim.Partition)
	// OneWay does so only in the direction from the rank and its Peers to the other
	// ranks.
	OneWay Kind = Kind(sim.OneWay)
)

// String returns the name of the kind.
func (k Kind) String() string { return sim.Kind(k).String() }

// A Fault is something that goes wrong, once.
type Fault struct {
	Kind Kind
	// Rank is the rank or newcomer that the fault affects.
	Rank int
	// Message triggers the fault when the rank sends its nth message on the
	// network, counted from zero. One operation usually sends several.
	// Result.Messages of a run without the fault has the number of messages.
	Message int
	// At, if not zero, triggers the fault at a time after the start instead.
	At time.Duration
	// For is the duration of a Stall or a partition. Zero means forever.
	For time.Duration
	// Peers are the other ranks and newcomers that the fault affects; see the kinds.
	Peers []int
}

func (o *Options) internal() sim.Options {
	s := sim.Options{
		Seed: o.Seed, Ranks: o.Ranks, Newcomers: o.Newcomers, Timeout: o.Timeout, HostTimeout: o.HostTimeout, Latency: o.Latency,
		Bandwidth: o.Bandwidth, Limit: o.Limit, Log: o.Log, Network: network.Options{Reproducible: o.Reproducible}, Broken: o.broken,
	}
	for _, f := range o.Faults {
		s.Faults = append(s.Faults, sim.Fault{
			Kind: sim.Kind(f.Kind), Rank: f.Rank, Message: f.Message, At: f.At, For: f.For, Peers: f.Peers,
		})
	}
	return s
}

// A Result describes a run. Its lists by rank have the ranks, as they were numbered at the
// start, and then the newcomers.
type Result struct {
	// Seed and Faults are those of the Options.
	Seed   uint64
	Faults []Fault
	// Hash is a hash of all events. It is the same for the same Options.
	Hash uint64
	// Elapsed is the duration of the run, in virtual time.
	Elapsed time.Duration
	// Errs has, by rank, the error that its function returned. A newcomer has the
	// error of Join if that failed, and nil if it still waited for Grow when the run
	// ended. It is undefined for ranks that are Dead.
	Errs []error
	// Dead tells, by rank, whether it crashed, vanished, or was stopped forever.
	Dead []bool
	// Fired tells, by fault, whether it happened. It does not happen if the rank
	// never sends that message.
	Fired []bool
	// Messages has, by rank, the number of messages that it sent to other ranks and
	// to the store.
	Messages []int

	all *sim.Result
}
