package engine

import (
	"slices"
	"time"
)

// Facts describe a failure in numbers and names. Event determines which of the other fields are
// set. All ranks are numbers of the group that has failed, except in Cause.
type Facts struct {
	Event Event  `json:"event,omitempty"`
	Sides []Side `json:"sides,omitempty"` // the ranks that disagree, or between which data was damaged
	Ranks []int  `json:"ranks,omitempty"` // the members of the group that was being made, or the ranks with other results
	Tag   int    `json:"tag,omitempty"`   // of a message
	Loss  Loss   `json:"loss,omitempty"`  // of the lost ranks
	// Limit is the time limit that has passed.
	Limit time.Duration `json:"limit,omitempty"`
	// Wait is what the rank waited for when its operation was interrupted.
	Wait Wait `json:"wait,omitzero"`
	// Waits are messages that ranks wait for in a cycle, Total is the number of these ranks, which
	// may be more than Waits holds.
	Waits []MessageWait `json:"waits,omitempty"`
	Total int           `json:"total,omitempty"`
	// Device is the device that has failed.
	Device string `json:"device,omitempty"`
	// Cause is the failure of another group that made this group fail. Its ranks are numbers of
	// that group.
	Cause *Failure `json:"cause,omitempty"`
	// Text is the text of an underlying error, or a text from the user. It is the whole reason if
	// Event is Described.
	Text string `json:"text,omitempty"`
}

// An Event is the kind of thing that happened.
type Event uint8

// The events, and the facts that belong to them. An unknown Event is treated as Described.
const (
	Described Event = iota // Text is the whole reason

	CallsDiffer      // two Sides made different calls; without Sides only hashes of the calls differ
	StepsDiffer      // two Sides are in calls with different Steps
	AlgorithmsDiffer // two Sides use different algorithms for one call
	CountsDiffer     // Sides[0] expects N elements from Sides[1], which has another N for it
	SegmentsDiffer   // Sides[0] receives segments of N bytes, Sides[1] sends segments of another N
	MessagesDiffer   // the elements that Sides[0] receives with Tag differ from those that Sides[1] sends
	MemoryFreed      // Sides[0] has freed memory of Alloc that Sides[1] still uses
	OutOfBounds      // Sides[0] has requested N bytes outside of a buffer of Sides[1], which has N

	RanksLost        // the lost ranks were lost by Loss; Text is an error with details
	LostElsewhere    // Rank found in another group that ranks are lost
	LeftElsewhere    // Rank has left because another group failed, by Cause
	LostWhileForming // Rank found that ranks are lost while the group of Ranks was being made; see Cause
	ParentFailed     // the parent group has failed while this group was being made, by Cause
	FormingFailed    // the group of Ranks could not be made, because of Cause or Text
	SharingFailed    // memory could not be shared on Rank, because of Text

	LimitPassed    // Limit passed while the rank waited for Wait
	DeadlinePassed // the context's deadline passed
	Cancelled      // the context was cancelled, for the cause in Text

	WaitCycle // ranks have waited for each other's messages for Limit, as in Waits

	TransferDamaged // data from Sides[0] at the address in Text arrived at Sides[1] with a wrong checksum
	ResultDiffers   // the results of Ranks differ from the result of most ranks
	ResultsDiffer   // the results of Ranks differ, and no result has a majority

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
	Algorithm string   `json:"algorithm,omitempty"` // that the rank uses for the call
}

// A MessageWait says that a rank waits for a peer to take or to send a message.
type MessageWait struct {
	Rank int  `json:"rank"`
	Peer int  `json:"peer"`
	Tag  int  `json:"tag,omitempty"`
	Send bool `json:"send,omitempty"` // Rank waits to send
}

// A Loss is the way in which a rank was lost. An unknown value is its own text.
type Loss string

// The ways in which ranks are lost.
const (
	Closed       Loss = "closed"       // the rank has closed the group
	Exited       Loss = "exited"       // its process has exited without Close
	HostSilent   Loss = "silent"       // its host does not answer
	Disconnected Loss = "disconnected" // its connection has ended without Close
	JoinFailed   Loss = "join"         // it has left because its Join failed
)

// A Wait describes for which ranks a rank waited, and in which phase.
type Wait struct {
	Phase Phase  `json:"phase,omitempty"`
	Ranks []int  `json:"ranks,omitempty"` // the ranks that it waited for
	Last  []Side `json:"last,omitempty"`  // the last calls of some of these ranks; a zero Call: none yet
	// Unheard are the ranks from which this rank received nothing in this call.
	Unheard []int `json:"unheard,omitempty"`
	// Behind are the ranks that have not arrived at a later operation.
	Behind []int `json:"behind,omitempty"`
	// OtherTag is the tag of another message that the peer has posted; nil: none.
	OtherTag *int `json:"otherTag,omitempty"`
	// Beyond are ranks for which the rank may have waited indirectly; see Relay.
	Beyond []int `json:"beyond,omitempty"`
	Relay  Relay `json:"relay,omitempty"`
	// Leader is the rank that waits for Beyond, if Relay is LeaderWaits.
	Leader int `json:"leader,omitempty"`
}

// A Phase is the progress of an operation.
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

// A Relay is the way in which a rank may wait indirectly for other ranks.
type Relay uint8

// The relays.
const (
	NoRelay       Relay = iota
	HostsWait           // leaders in Ranks may wait for ranks of their hosts, Beyond
	LeaderWaits         // Leader may wait for ranks of other hosts, Beyond
	HostsNotAsked       // the leader has not contacted other hosts yet; Beyond are their ranks

	numRelays
)

// Interrupted reports whether a time limit or the context has ended the operation.
func (f *Facts) Interrupted() bool {
	return f.Event == LimitPassed || f.Event == DeadlinePassed || f.Event == Cancelled
}

// Renumber returns the facts with the rank numbers of another group. ranks[r] is the new number of
// rank r. Numbers outside of ranks do not change.
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
	n.Waits = slices.Clone(f.Waits)
	for i := range n.Waits {
		n.Waits[i].Rank, n.Waits[i].Peer = number(n.Waits[i].Rank), number(n.Waits[i].Peer)
	}
	w := &n.Wait
	w.Ranks, w.Last, w.Unheard = numbers(w.Ranks), sides(w.Last), numbers(w.Unheard)
	w.Behind, w.Beyond = numbers(w.Behind), numbers(w.Beyond)
	if w.Relay == LeaderWaits {
		w.Leader = number(w.Leader)
	}
	return n
}
