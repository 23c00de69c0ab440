package network

import (
	"context"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// Options are what an engine can be made with. The zero value is right for
// ranks on hosts of their own. All ranks of a group are made with the same
// Reproducible, Segment and Algorithms.
type Options struct {
	// Timeout bounds each operation. Zero or less: no bound.
	Timeout time.Duration
	// Reproducible makes reductions combine in rank order.
	Reproducible bool
	// Segment is how many bytes are received before they are reduced or passed
	// on. Zero: 256 KiB. Tests make it small to reach many segments cheaply.
	Segment int
	// Algorithms forces algorithms. Zero: the size of the data decides.
	Algorithms Algorithms

	// Lot is where the engine's goroutines park. A transport that wakes them
	// has it, too. Nil: the engine makes one.
	ParkingLot *wait.ParkingLot
	// Hosts names each rank's host by the lowest rank on it. Nil: every rank
	// is on a host of its own.
	Hosts []int

	// OnFail is told of a failure that began on this rank, once, before the
	// engine takes it as its cause. The owner tells the other ranks; if it knows
	// of an earlier failure, it calls Fail with that, marked as Told. OnFail
	// must not block. Nil: nobody is told.
	OnFail func(*engine.Failure)
	// Excuse says why this rank leaves the group though it is well; it returns nil
	// if that is for no reason. See engine.Excuse. Nil: it never has one.
	Excuse func() *engine.Failure
	// Sub makes this rank's side of a group of some of the ranks, as
	// engine.Engine says. Nil: there are no such groups.
	Sub func(ctx context.Context, seq uint64, members []int) (engine.Engine, error)
}

const (
	defaultSegment = 256 << 10
	// grain is what segments are a multiple of, so that no element is cut.
	grain = 8
)

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

// Algorithms names an algorithm per verb. One that cannot carry out a call (an
// uneven form, or a reproducible reduction) is not used for it.
type Algorithms struct {
	AllReduce, Reduce, Broadcast, AllGather, ReduceScatter, Gather, Scatter, AllToAll Algorithm
}

// An Algorithm is a way to carry out a verb. The zero value leaves the choice
// to the engine.
type Algorithm uint8

// The algorithms, and the verbs that they are for.
const (
	// Doubling swaps everything with ranks at doubling distances: AllReduce.
	Doubling Algorithm = 1 + iota
	// Halving swaps ever smaller halves, after which each rank has reduced a
	// part of its own, and the same backwards: AllReduce, ReduceScatter.
	Halving
	// Ring passes parts from each rank to the next: AllReduce, Reduce,
	// AllGather, ReduceScatter.
	Ring
	// Direct sends each part straight to where it is needed, and combines in
	// rank order: AllReduce, Reduce, ReduceScatter, Gather, Scatter, AllToAll.
	Direct
	// Linear lets the root take everybody's data in rank order: Reduce.
	Linear
	// Bruck collects blocks at doubling distances: AllGather, AllToAll, and
	// AllReduce, where everybody then combines all data in rank order.
	Bruck
	// Tree is the binomial tree: Reduce, Broadcast, Gather, Scatter.
	Tree
	// Chain passes segments along a line of all ranks: Broadcast.
	Chain
	// Dissemination is the one way through a Barrier.
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
