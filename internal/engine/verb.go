package engine

import (
	"fmt"
	"math"
)

// A Verb is a kind of collective operation.
type Verb uint8

// The verbs. Split, Dup and Alloc are calls on a communicator that all ranks
// make together. They carry no data of the caller. Group stands for several
// calls that travel as one operation; only a Fingerprint and a record of an
// operation hold it.
const (
	AllReduce Verb = iota + 1
	Reduce
	Broadcast
	AllGather
	ReduceScatter
	Gather
	Scatter
	AllToAll
	Scan
	ExScan
	Barrier
	Split
	Dup
	Alloc
	Group
)

// A Party is the set of ranks that use one side of a call.
type Party uint8

// The parties.
const (
	NoRank Party = iota
	EveryRank
	RootOnly
	AllButRoot
	AllButFirst // rank 0 is not in it
	thisRank    // of a message in a Footprint: the rank that checks
)

// Has reports whether rank belongs to the party of a call with that root.
func (p Party) Has(rank, root int) bool {
	return p == EveryRank || p == RootOnly && rank == root || p == AllButRoot && rank != root || p == AllButFirst && rank != 0
}

// An Operand describes the source or the destination of a verb.
type Operand struct {
	// Ranks are the ranks that pass this side and whose memory the verb uses.
	Ranks Party
	// Divided reports that the side holds one share per rank. Shares of the
	// source are read by the rank with that number; shares of the destination
	// hold the data of that rank. The uneven form passes a divided side as a
	// list of shares.
	Divided bool
}

// A Prefix selects the ranks whose elements a reduction combines on a rank.
type Prefix uint8

// The prefixes.
const (
	NoPrefix  Prefix = iota // all ranks
	Inclusive               // the ranks up to this one
	Exclusive               // the ranks before this one
)

// Sources returns the number of ranks, from 0 on, whose elements a verb with this prefix combines on a rank.
func (p Prefix) Sources(rank, size int) int {
	switch p {
	case Inclusive:
		return rank + 1
	case Exclusive:
		return rank
	}
	return size
}

// A VerbInfo holds the facts about a verb that do not depend on the engine.
//
// If one side is divided, every rank uses the other side. A verb that has data
// moves it by this rule: rank r writes, into its destination, the sources of
// the ranks in Source.Ranks. If the source is divided, r takes share r of each
// source, and otherwise all of it. A verb that reduces combines the data of all
// ranks, or of the ranks that Prefix says, element by element. A verb that does not
// stores the data of rank s in share s if the destination is divided.
type VerbInfo struct {
	Name    string  // of the method of Comm
	Uneven  string  // name of the method of the uneven form; "": the verb has none
	Reduces bool    // the verb combines elements with a ReduceOp
	Prefix  Prefix  // whose elements it combines
	Rooted  bool    // the verb has a root
	Source  Operand // what the verb reads
	Dest    Operand // what the verb writes
	// InPlace reports that the source and the destination are one buffer on
	// every rank, and that the caller passes it once.
	InPlace bool
	// Typed reports that the type and the number of elements belong to the
	// Fingerprint.
	Typed bool
	// EqualResults reports that the destinations of all ranks are equal.
	EqualResults bool
}

// verbTable is indexed by Verb. It has an entry for every value, so that a lookup needs no
// check of the bounds. Entries that describe no verb are zero.
var verbTable = [math.MaxUint8 + 1]VerbInfo{
	AllReduce: {
		Name: "AllReduce", Reduces: true, Typed: true, EqualResults: true,
		Source: Operand{Ranks: EveryRank}, Dest: Operand{Ranks: EveryRank},
	},
	Reduce: {
		Name: "Reduce", Reduces: true, Rooted: true, Typed: true,
		Source: Operand{Ranks: EveryRank}, Dest: Operand{Ranks: RootOnly},
	},
	Broadcast: {
		Name: "Broadcast", Rooted: true, InPlace: true, Typed: true, EqualResults: true,
		Source: Operand{Ranks: RootOnly}, Dest: Operand{Ranks: AllButRoot},
	},
	AllGather: {
		Name: "AllGather", Uneven: "AllGatherV", Typed: true, EqualResults: true,
		Source: Operand{Ranks: EveryRank}, Dest: Operand{Ranks: EveryRank, Divided: true},
	},
	ReduceScatter: {
		Name: "ReduceScatter", Uneven: "ReduceScatterV", Reduces: true, Typed: true,
		Source: Operand{Ranks: EveryRank, Divided: true}, Dest: Operand{Ranks: EveryRank},
	},
	Gather: {
		Name: "Gather", Uneven: "GatherV", Rooted: true, Typed: true,
		Source: Operand{Ranks: EveryRank}, Dest: Operand{Ranks: RootOnly, Divided: true},
	},
	Scatter: {
		Name: "Scatter", Uneven: "ScatterV", Rooted: true, Typed: true,
		Source: Operand{Ranks: RootOnly, Divided: true}, Dest: Operand{Ranks: EveryRank},
	},
	AllToAll: {
		Name: "AllToAll", Uneven: "AllToAllV", Typed: true,
		Source: Operand{Ranks: EveryRank, Divided: true}, Dest: Operand{Ranks: EveryRank, Divided: true},
	},
	Scan: {
		Name: "Scan", Reduces: true, Prefix: Inclusive, Typed: true,
		Source: Operand{Ranks: EveryRank}, Dest: Operand{Ranks: EveryRank},
	},
	ExScan: {
		Name: "ExScan", Reduces: true, Prefix: Exclusive, Typed: true,
		Source: Operand{Ranks: EveryRank}, Dest: Operand{Ranks: AllButFirst},
	},
	Barrier: {Name: "Barrier"},
	Split:   {Name: "Split", Source: Operand{Ranks: EveryRank}, Dest: Operand{Ranks: EveryRank, Divided: true}},
	Dup:     {Name: "Dup"},
	Alloc:   {Name: "Alloc", Typed: true},
	Group:   {Name: "Batch", Typed: true},
}

// Info returns the facts about the verb. An unknown verb has the zero VerbInfo.
func (v Verb) Info() *VerbInfo { return &verbTable[v] }

// String returns the name of the method of Comm, such as "AllReduce".
func (v Verb) String() string {
	if name := v.Info().Name; name != "" {
		return name
	}
	return fmt.Sprintf("verb %d", uint8(v))
}

// Reduces reports whether the verb combines elements.
func (v Verb) Reduces() bool { return v.Info().Reduces }

// Accepts reports whether the verb can combine elements with the operator. With a prefix, the ranks
// combine different numbers of sources, so that one factor for all of them gives no average.
func (v Verb) Accepts(r ReduceOp) bool {
	return v.Info().Prefix == NoPrefix || r.Info().Scaling != ByRanks
}

// Rooted reports whether the verb has a root.
func (v Verb) Rooted() bool { return v.Info().Rooted }

// Synchronizes reports whether no rank completes such a call before every rank has
// begun it. A call with a root or a prefix may complete earlier on some ranks.
func (v Verb) Synchronizes() bool {
	i := v.Info()
	return i.Name != "" && !i.Rooted && i.Prefix == NoPrefix
}

// FormName returns the name of the method that makes such a call, in its uneven
// form or not. It does not allocate for a known verb.
func (v Verb) FormName(uneven bool) string {
	switch i := v.Info(); {
	case uneven && i.Uneven != "":
		return i.Uneven
	case i.Name != "":
		return i.Name
	}
	return v.String()
}
