package tuttitest

import (
	"io"
	"time"

	"github.com/tutti-go/tutti/internal/engine/network"
	"github.com/tutti-go/tutti/internal/sim"
)

// Options say what is simulated. All times are virtual. The zero value of all
// but Ranks is right for most tests.
type Options struct {
	// Ranks is how many there are: up to some thousand.
	Ranks int
	// Seed decides all that is left to chance.
	Seed uint64
	// Faults are what goes wrong.
	Faults []Fault

	// Timeout is tutti.Config's: zero means five minutes; negative, no bound.
	Timeout time.Duration
	// Patience is tutti.Config's: zero means ten seconds.
	Patience time.Duration
	// Reproducible is tutti.Config's.
	Reproducible bool
	// Silence is how long a host may not answer before its rank is lost. Zero
	// means 30 s.
	Silence time.Duration
	// Latency is about that of a link, one way. Zero means 20 us.
	Latency time.Duration
	// Bandwidth is that of a link, in bytes a second. Zero means 12.5e9.
	Bandwidth float64
	// Limit is after how long ranks that have not returned count as hung. Zero
	// means an hour.
	Limit time.Duration
	// Log is told all that happens, a line each. Nil means nobody is.
	Log io.Writer

	broken bool // the store does not compare what it sets; see sim.Options
}

// A Kind is what a fault does.
type Kind uint8

// The kinds of fault.
const (
	// Crash ends the rank's process. Its connections end; what it has sent may
	// still arrive.
	Crash Kind = iota + 1
	// Vanish ends the rank's host: nothing more comes from it.
	Vanish
	// Stall stops the rank's process, as SIGSTOP does.
	Stall
	// Cut ends the data connections between the rank and its Peers or, without
	// any, the rank that a message was for. If that was for the store, the
	// request fails, though it may have been served.
	Cut
	// Partition cuts the rank and its Peers off from the others. What is sent
	// meanwhile arrives when it is over, if it is over before the time of
	// Silence. The store is on the others' side.
	Partition
	// OneWay does so only with what goes from the rank and its Peers to the
	// others.
	OneWay
)

// String names the kind.
func (k Kind) String() string { return sim.Kind(k).String() }

// A Fault is something that goes wrong, once.
type Fault struct {
	Kind Kind
	// Rank is whom it happens to.
	Rank int
	// Message is when: when the rank sends its nth message on the network, from
	// zero. One operation usually takes several. What a rank sends without the
	// fault is in Result.Messages.
	Message int
	// At, if it is not zero, is a time since the beginning in place of that.
	At time.Duration
	// For is how long a Stall or a partition lasts. Zero means for good.
	For time.Duration
	// Peers are the other ranks that it is about; see the kinds.
	Peers []int
}

func (o *Options) internal() sim.Options {
	s := sim.Options{
		Seed: o.Seed, Ranks: o.Ranks, Timeout: o.Timeout, Silence: o.Silence, Latency: o.Latency,
		Bandwidth: o.Bandwidth, Limit: o.Limit, Log: o.Log, Wire: network.Options{Reproducible: o.Reproducible}, Broken: o.broken,
	}
	for _, f := range o.Faults {
		s.Faults = append(s.Faults, sim.Fault{
			Kind: sim.Kind(f.Kind), Rank: f.Rank, Message: f.Message, At: f.At, For: f.For, Peers: f.Peers,
		})
	}
	return s
}

// A Result is what a run was.
type Result struct {
	// Seed and Faults are the Options'.
	Seed   uint64
	Faults []Fault
	// Hash is that of all that happened: the same for the same Options.
	Hash uint64
	// Elapsed is how long it took, in virtual time.
	Elapsed time.Duration
	// Errs has, by rank, what its function returned. Those of ranks that are Dead
	// mean nothing.
	Errs []error
	// Dead are the ranks that crashed, vanished, or were stopped for good, by
	// rank.
	Dead []bool
	// Fired says, by fault, whether it happened: a rank may never come to that
	// message.
	Fired []bool
	// Messages is how many each rank sent: on the network to other ranks, and to
	// the store.
	Messages []int

	all *sim.Result
}
