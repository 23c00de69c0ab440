package network

import (
	"context"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// Options configure an engine. The zero value is for ranks on separate hosts. All
// ranks of a group must have the same Reproducible, Segment and Algorithms.
type Options struct {
	// Timeout bounds each operation. Zero or less: no bound.
	Timeout time.Duration
	// Reproducible makes reductions combine in rank order.
	Reproducible bool
	// Segment is the size, in bytes, of the pieces in which received data is
	// reduced or passed on. Zero: 256 KiB. Tests set it low to reach many segments
	// cheaply.
	Segment int
	// Algorithms forces algorithms. Zero: the engine chooses by the size of the
	// data.
	Algorithms Algorithms

	// ParkingLot is where the engine's goroutines wait. The transport must use the
	// same one to wake them. Nil: the engine makes one.
	ParkingLot *wait.ParkingLot
	// Hosts names each rank's host by the lowest rank on it. Nil: every rank is on
	// a host of its own.
	Hosts []int

	// OnFail reports a failure that began on this rank, once, before the engine
	// takes it as its cause. The owner forwards it to the other ranks. If the owner
	// knows of an earlier failure, it calls Fail with that failure, marked as Told.
	// OnFail must not block. Nil: the failure is not reported.
	OnFail func(*engine.Failure)
	// Excuse returns why this rank leaves the group although it has not failed, or
	// nil if there is no reason. See engine.Excuse. Nil: there never is one.
	Excuse func() *engine.Failure
	// Sub creates this rank's engine in a group of some of the ranks, see
	// engine.Engine. Nil: Engine.Sub fails.
	Sub func(ctx context.Context, seq uint64, members []int) (engine.Engine, error)
}

const (
	defaultSegment = 256 << 10
	// grain divides the size of a segment, in bytes, so that segments end between
	// elements.
	grain = 8
)

// fill sets the defaults for a group of the given number of ranks. Without Hosts, each rank counts as a host
// of its own.
func (o *Options) fill(ranks int) {
	if o.Segment <= 0 {
		o.Segment = defaultSegment
	}
	o.Segment = max(o.Segment/grain, 1) * grain
	if o.ParkingLot == nil {
		o.ParkingLot = wait.NewParkingLot(ranks)
	}
	if o.Hosts == nil {
		o.Hosts = make([]int, ranks)
		for r := range o.Hosts {
			o.Hosts[r] = r
		}
	}
}

// Algorithms selects an algorithm per verb. An algorithm that cannot run a call (an
// uneven form, or a reproducible reduction) is ignored for that call. Scan is also for ExScan.
type Algorithms struct {
	AllReduce, Reduce, Broadcast, AllGather, ReduceScatter, Gather, Scatter, AllToAll, Scan Algorithm
}

// An Algorithm is a schedule of sends and receives for a verb. The zero value lets
// the engine choose.
type Algorithm uint8

// The algorithms, and the verbs that use them.
const (
	// Doubling is recursive doubling, which exchanges all data in each round:
	// AllReduce. In Scan and ExScan, data goes to higher ranks at doubling distances.
	Doubling Algorithm = 1 + iota
	// Halving is recursive halving, after which each rank has reduced one part,
	// followed for AllReduce by recursive doubling: AllReduce, ReduceScatter.
	Halving
	// Ring passes parts from each rank to the next: AllReduce, Reduce, AllGather,
	// ReduceScatter.
	Ring
	// Direct sends each part directly to the rank that needs it, which combines in
	// rank order: AllReduce, Reduce, ReduceScatter, Gather, Scatter, AllToAll.
	Direct
	// Linear makes the root receive all data in rank order: Reduce.
	Linear
	// Bruck collects blocks at doubling distances: AllGather, AllToAll, and
	// AllReduce, Scan and ExScan, where every rank then combines the data in rank order.
	Bruck
	// Tree is the binomial tree: Reduce, Broadcast, Gather, Scatter.
	Tree
	// Chain passes segments from each rank to the next: Broadcast, Scan, ExScan.
	Chain
	// Dissemination sends an empty frame at doubling distances: Barrier.
	Dissemination
)

var algorithmNames = [...]string{
	"none", Doubling: "doubling", Halving: "halving", Ring: "ring", Direct: "direct", Linear: "linear",
	Bruck: "bruck", Tree: "tree", Chain: "chain", Dissemination: "dissemination",
}

func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return "unknown"
}
