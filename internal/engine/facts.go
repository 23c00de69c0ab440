package engine

import (
	"slices"
	"time"
)

// Facts say what has happened in a failure, in numbers and names. Event says which of the other
// fields have a meaning. All ranks in them are numbers of the group that has failed, except in
// Cause.
type Facts struct {
	Event Event  `json:"event,omitempty"`
	Sides []Side `json:"sides,omitempty"` // the ranks that disagree, or between which data was damaged
	Ranks []int  `json:"ranks,omitempty"` // the members of the group that was being made, or the ranks with other results
	Tag   int    `json:"tag,omitempty"`   // of a message
	Loss  Loss   `json:"loss,omitempty"`  // how the lost ranks were lost
	// Limit is the time limit that has passed.
	Limit time.Duration `json:"limit,omitempty"`
	// Wait is what the rank waited for when its operation was interrupted.
	Wait Wait `json:"wait,omitzero"`
	// Device is the device that has failed.
	Device string `json:"device,omitempty"`
	// Cause is the failure of another group because of which this one has failed. It is in the
	// numbers of that group.
	Cause *Failure `json:"cause,omitempty"`
	// Text holds the words of an underlying error, or the user's own. An error without any other
	// facts is only this.
	Text string `json:"text,omitempty"`
}

// An Event is what has happened.
type Event uint8

// The events, and the facts that belong to them. An Event that is not known is Described.
const (
	Described Event = iota // Text is the whole reason

	CallsDiffer      // two Sides made different calls; without Sides only hashes of the calls differ
	StepsDiffer      // two Sides are in calls with different Steps
	AlgorithmsDiffer // two Sides carry out one call by different algorithms
	CountsDiffer     // Sides[0] expects N elements from Sides[1], which has another N for it
	SegmentsDiffer   // Sides[0] receives segments of N bytes, Sides[1] sends segments of another N
	MessagesDiffer   // Sides[0] receives other elements with Tag than Sides[1] sends
	MemoryFreed      // Sides[0] has freed memory of Alloc that Sides[1] still uses
	OutOfBounds      // Sides[0] has requested N bytes outside of a buffer of Sides[1], which has N

	RanksLost        // the lost ranks were lost by Loss; Text is an error that says more
	LostElsewhere    // Rank found in another group that ranks are lost
	LeftElsewhere    // Rank has left because another group failed, by Cause
	LostWhileForming // Rank found that ranks are lost while the group of Ranks was being made; see Cause
	ParentFailed     // the group that this one was being made of has failed, by Cause
	FormingFailed    // the group of Ranks could not be made, because of Cause or Text
	SharingFailed    // memory could not be shared on Rank, because of Text

	LimitPassed    // Limit passed while the rank waited for Wait
	DeadlinePassed // the context's deadline passed
	Cancelled      // the context was cancelled, for the cause in Text

	TransferDamaged // what Sides[0] sent to Sides[1], from the address in Text, has another checksum
	ResultDiffers   // the results of Ranks are not that of most ranks
	ResultsDiffer   // the results of Ranks differ, and no result is that of most ranks

	TransportFailed // by the error in Text
	DeviceFailed    // Device has failed on Rank, by the error in Text
	DeviceUnfit     // Device cannot be used for a new group on Rank, by the error in Text
	AbortCalled     // Abort was called on Rank, for the cause in Text
	OpCalled        // Op was called on Rank, and all ranks must call it

	numEvents
)

// A Side is one rank's side of a disagreement.
type Side struct {
	Rank      int      `json:"rank"`
	Call      CallInfo `json:"call,omitzero"`
	N         int64    `json:"n,omitempty"`         // elements or bytes
	Step      uint64   `json:"step,omitempty"`      // the number of the call
	Algorithm string   `json:"algorithm,omitempty"` // by which the rank carries out the call
}

// A Loss is how a rank was lost. A value that is not known is shown as it is.
type Loss string

// The ways in which ranks are lost.
const (
	Closed       Loss = "closed"       // the rank has closed the group
	Exited       Loss = "exited"       // its process has exited without Close
	HostSilent   Loss = "silent"       // its host does not answer
	Disconnected Loss = "disconnected" // its connection has ended without Close
	JoinFailed   Loss = "join"         // it has left because its Join failed
)

// A Wait says what a rank waited for.
type Wait struct {
	Phase Phase  `json:"phase,omitempty"`
	Ranks []int  `json:"ranks,omitempty"` // the ranks that it waited for
	Last  []Side `json:"last,omitempty"`  // the last calls of some of these ranks; a zero Call: none yet
	// Unheard are the ranks from which nothing has come in this call.
	Unheard []int `json:"unheard,omitempty"`
	// Behind are the ranks that have not come to a later operation.
	Behind []int `json:"behind,omitempty"`
	// OtherTag is the tag of a message that the peer has posted instead; nil if it has posted none.
	OtherTag *int `json:"otherTag,omitempty"`
	// Beyond are ranks that the rank may have waited for through another rank; see Relay.
	Beyond []int `json:"beyond,omitempty"`
	Relay  Relay `json:"relay,omitempty"`
	// Leader is the rank that waits for Beyond, if Relay is LeaderWaits.
	Leader int `json:"leader,omitempty"`
}

// A Phase is how far an operation was.
type Phase uint8

// The phases.
const (
	PhaseUnknown Phase = iota
	NotBegun           // the operation had not begun
	Queued             // it waited for the operations before it
	AboutToWait        // it was about to wait for Ranks
	Arriving           // Ranks had not arrived; without Ranks all ranks had arrived
	Finishing          // Ranks had arrived and did not finish
	Exchanging         // it waited for data from or to Ranks
	Sending            // the rank in Ranks did not receive its message
	Receiving          // the rank in Ranks did not send its message
	DeviceAtWork       // the Device was at work, and all ranks had begun
	DeviceAhead        // the Device was at work, and all ranks had started the operation

	numPhases
)

// A Relay is how a rank may wait for ranks beyond those that it knows of.
type Relay uint8

// The relays.
const (
	NoRelay       Relay = iota
	HostsWait           // the leaders among the ranks waited for may wait for ranks of their hosts, Beyond
	LeaderWaits         // Leader may wait for ranks of other hosts, Beyond
	HostsNotAsked       // ranks of other hosts, Beyond, have not been asked yet

	numRelays
)

// Interrupted reports whether the facts are those of an operation that a time limit or its context
// has ended.
func (f *Facts) Interrupted() bool {
	return f.Event == LimitPassed || f.Event == DeadlinePassed || f.Event == Cancelled
}

// Renumber returns the facts with the numbers of another group: ranks holds the new number of each
// rank. Numbers that it does not hold stay.
func (f *Facts) Renumber(ranks []int) Facts {
	number := func(r int) int {
		if r >= 0 && r < len(ranks) {
			return ranks[r]
		}
		return r
	}
	numbers := func(list []int) []int {
		list = slices.Clone(list)
		for i, r := range list {
			list[i] = number(r)
		}
		return list
	}
	sides := func(list []Side) []Side {
		list = slices.Clone(list)
		for i := range list {
			list[i].Rank = number(list[i].Rank)
		}
		return list
	}
	n := *f
	n.Sides, n.Ranks = sides(f.Sides), numbers(f.Ranks)
	w := &n.Wait
	w.Ranks, w.Last, w.Unheard = numbers(w.Ranks), sides(w.Last), numbers(w.Unheard)
	w.Behind, w.Beyond = numbers(w.Behind), numbers(w.Beyond)
	if w.Relay == LeaderWaits {
		w.Leader = number(w.Leader)
	}
	return n
}
