package overlay

import (
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// A Node is one rank's part of the control channel. It is not safe for concurrent use.
// After every input its owner calls Take, performs the actions in order, and schedules Tick for Next.
type Node struct {
	self        int
	peers       []peer
	active      []int         // sorted: ranks whose peer may not be idle; ticks visit only these
	hosts       []int         // by rank: the lowest rank of the same host; nil: not known
	hostTimeout time.Duration // how long a host may not answer before its ranks are lost

	facts        []*Message         // in the order in which this rank learned them
	causes       map[string]*Cause  // first causes by group, at most maxCauses
	pending      map[string]*report // reports without a decision, by group
	unacked      []byeAck           // goodbyes to be acknowledged when this rank has other links
	unackedSince time.Time          // when the first goodbye of unacked was received
	unforwarded  []int              // ranks that have left and are not announced on the links yet
	positions    []*Message         // the last maxPositions that were forwarded
	seen         []uint64           // by rank: the number of its last Position
	numPositions uint64             // Positions that this rank has sent

	losses   int       // number of lost ranks
	canDial  bool      // this rank can dial; see Reach
	buildAt  time.Time // when links to the wanted ranks are made even if nothing urgent has happened
	tickAt   time.Time // when Tick is due; zero: no tick is due
	probeAt  time.Time // when the successor is asked next
	leaving  bool
	byes     uint64 // goodbyes that this rank has sent
	coverBye uint64 // number of the first goodbye whose acknowledgement covers all departures that this rank has acknowledged

	apartSince time.Time // since when no rank that answers has a link with this rank; zero: one has
	held       []Action  // Lose and Fail actions that wait for a link; see apart

	actions []Action
}

// A peer is the Node's knowledge of another rank.
type peer struct {
	links        int         // number of open links
	made         int         // links of these that this rank dialed and may drop
	dialedAt     time.Time   // when the last dial began
	broken       engine.Loss // why its last link ended without a goodbye; empty: none has ended since LinkUp
	missingSince time.Time   // since when nothing listens at its address; zero: not known
	cutOffSince  time.Time   // since when its host does not answer a dial; zero: it answers
	askedAt      time.Time   // when the unanswered Ask or dial was sent; zero: there is none
	lastAsk      uint64      // number of the last Ask
	unackedByes  int         // goodbyes that it has not acknowledged
	status       rankStatus
	gotState     bool // it has sent its State on a link, so it forwards facts there
	dialing      bool // a dial is in progress
	unanswered   bool // its host accepted a dial that was not answered: the process may be stopped
	askAgain     bool // messages were sent after the unanswered Ask
	suspected    bool // it has not answered in time
	uncovered    bool // it has left, and the links were notified after this rank's last goodbye
	acked        bool // it has acknowledged a goodbye that covers all departures this rank must forward
}

// A rankStatus says whether a rank is present, has left or is lost. It changes at most once, from present.
type rankStatus uint8

const (
	present rankStatus = iota
	left
	lost
)

const (
	// Pace is the interval between two ticks while work is due.
	Pace = 100 * time.Millisecond
	// probePace is the interval between Asks to the successor, which detect stopped ranks. In a
	// large job it is probePerRank times the number of ranks, at most maxProbePace, because the
	// ranks of one host may share few CPUs.
	probePace    = 200 * time.Millisecond
	probePerRank = 8 * time.Millisecond
	maxProbePace = 2 * time.Second
	// leftPace is how long departures are collected before they are forwarded.
	leftPace = 20 * time.Millisecond
	// SuspectAfter is how long a rank may take to acknowledge a message before it is suspected.
	SuspectAfter = 300 * time.Millisecond
	// suspectDial is how long a dial may take before the rank is suspected.
	suspectDial = 200 * time.Millisecond
	// buildPerRank, times the number of ranks, delays the making of links at the start of a job,
	// when the CPUs have other work.
	buildPerRank = 4 * time.Millisecond
	// missingFor is how long nothing may listen at the address of a rank without a link before the
	// rank is lost. The time lets another rank report that the rank has left. That rank may leave
	// as well, and forward the departure first to a rank that does not answer and then to another
	// one. See missingLimit.
	missingFor = 600 * time.Millisecond
	// decideAfter is how long the coordinator may take to decide on a cause. Each rank after the
	// next one waits decidePerRank longer.
	decideAfter   = 100 * time.Millisecond
	decidePerRank = 100 * time.Millisecond
	// confirmAfter is how much longer a rank takes to decide on a report that a rank is lost, unless
	// it learns of the loss or the links with that rank end.
	confirmAfter = 200 * time.Millisecond
	// lookAhead is how many ranks after a suspected successor are dialed at once, because they may
	// be stopped as well.
	lookAhead = 4
	// maxCauses and maxPositions bound a Node's memory.
	maxCauses    = 1024
	maxPositions = 64
)

// Times of the owners of a Node: package control, and in virtual time package sim and this package's tests.
const (
	// DialTime bounds a dial of another rank. It is long because a stopped process answers late,
	// and a dial that waits for the process fails at once when the process ends.
	DialTime = time.Minute
	// LeaveTime bounds how long a leaving rank waits for acknowledgements. The comment of
	// tutti.Comm.Close counts it.
	LeaveTime = 1500 * time.Millisecond
	// LeaveTick is the interval between ticks of a Node that leaves.
	LeaveTick = 2 * time.Millisecond
)

// Silent is the reason for a loss if the rank's host does not answer.
const Silent = engine.HostSilent

// notListening is the reason for a loss if nothing listens at the rank's address.
const notListening = engine.Exited

// New returns the Node of a rank. hostTimeout is how long a host may not answer before its ranks are
// lost.
func New(rank, size int, hostTimeout time.Duration) *Node {
	return &Node{
		self: rank, peers: make([]peer, size), hostTimeout: hostTimeout, seen: make([]uint64, size),
		causes: make(map[string]*Cause), pending: make(map[string]*report),
	}
}

// Begin adds the links of Join: rank 0 has one to each rank, the others have one to rank 0.
func (n *Node) Begin() {
	for r := range n.peers {
		if n.other(r) && (r == 0 || n.self == 0) {
			n.markActive(r)
			n.peers[r].links, n.peers[r].gotState = 1, true
		}
		if n.other(r) && r == 0 {
			n.peers[r].made = 1
		}
	}
}

// Hosts sets the host number of each rank. Ranks with the same number share a host.
func (n *Node) Hosts(hosts []int) { n.hosts = slices.Clone(hosts) }

// Reach allows dials. Before Reach, a rank whose link ends is lost.
func (n *Node) Reach(now time.Time) {
	n.canDial = true
	n.buildAt = now.Add(Pace + time.Duration(len(n.peers))*buildPerRank)
	n.probeAt = now.Add(Pace)
	n.arm(now)
}

// Take returns the actions since the last call.
func (n *Node) Take() []Action {
	list := n.actions
	n.actions = nil
	return list
}

// Next returns when Tick is due. It reports false if no tick is due.
func (n *Node) Next() (time.Time, bool) { return n.tickAt, !n.tickAt.IsZero() }

// arm schedules the next tick. Every input ends with a call of arm.
func (n *Node) arm(now time.Time) {
	n.reconnectIsolated(now)
	n.releaseHeld(now)
	var next time.Time
	switch {
	case len(n.unforwarded) > 0:
		next = now.Add(leftPace)
	case n.due():
		next = now.Add(Pace)
	case !n.canDial || n.successor() < 0:
		return
	default:
		next = n.probeAt
	}
	if n.tickAt.IsZero() || next.Before(n.tickAt) {
		n.tickAt = next
	}
}

// askSuccessor asks the next rank whether it runs. Every rank is another rank's successor, so every
// stopped rank is detected.
func (n *Node) askSuccessor(now time.Time) {
	r := n.successor()
	if r < 0 || !n.canDial || now.Before(n.probeAt) {
		return
	}
	n.probeAt = now.Add(min(max(probePace, time.Duration(len(n.peers))*probePerRank), maxProbePace))
	n.ask(now, r)
}

// due reports whether the next tick has work to do.
func (n *Node) due() bool {
	if len(n.pending) > 0 || len(n.unacked) > 0 || len(n.held) > 0 || n.leaving {
		return true
	}
	for _, r := range n.active {
		if p := &n.peers[r]; !p.askedAt.IsZero() || p.unresolved() {
			return true
		}
	}
	return n.canDial && (len(n.unlinked()) > 0 || len(n.surplus()) > 0)
}

// Tick does what depends on time. It forwards departures, suspects ranks that have not answered,
// makes and drops links, finds losses, decides on reported causes, asks the successor whether it runs,
// and schedules the next tick.
func (n *Node) Tick(now time.Time) {
	if late := now.Sub(n.tickAt); !n.tickAt.IsZero() && late > 3*Pace {
		n.restartTimers(now) // this process did not run in the meantime
	}
	n.tickAt = time.Time{}
	n.active = slices.DeleteFunc(n.active, func(r int) bool { return n.peers[r].idle() })
	n.flushLeft(now)
	n.suspect(now)
	if n.canDial {
		n.relink(now)
	}
	n.resolve(now)
	n.decide(now)
	n.askSuccessor(now)
	n.arm(now)
}

// markActive includes a rank in the ticks. It is called before the rank's peer changes.
func (n *Node) markActive(rank int) {
	if i, found := slices.BinarySearch(n.active, rank); !found {
		n.active = slices.Insert(n.active, i, rank)
	}
}

// idle reports whether a tick can skip the peer.
func (p *peer) idle() bool {
	return p.links == 0 && p.askedAt.IsZero() && !p.dialing && (p.status != present || !p.suspected && !p.unresolved())
}

func (n *Node) other(rank int) bool   { return rank != n.self }
func (n *Node) valid(rank int) bool   { return rank >= 0 && rank < len(n.peers) }
func (n *Node) present(rank int) bool { return n.peers[rank].status == present }
func (n *Node) linked(rank int) bool  { return n.peers[rank].links > 0 }

// answers reports whether a rank is present and not suspected.
func (n *Node) answers(rank int) bool { return n.present(rank) && !n.peers[rank].suspected }

// successor returns the first rank after this one that answers, or -1.
func (n *Node) successor() int {
	for i := 1; i < len(n.peers); i++ {
		if r := (n.self + i) % len(n.peers); n.answers(r) {
			return r
		}
	}
	return -1
}

// Present reports whether a rank is neither lost nor has left, as far as this rank knows.
func (n *Node) Present(rank int) bool { return n.present(rank) }

// Dependents returns the number of ranks that may have no link but the one with this rank. It is
// zero except on rank 0 before links are built.
func (n *Node) Dependents(now time.Time) int {
	if n.self != 0 || !n.canDial || !now.Before(n.buildAt) {
		return 0
	}
	count := 0
	for r := range n.peers {
		if n.other(r) && n.answers(r) {
			count++
		}
	}
	return count
}

// Links returns the number of open links.
func (n *Node) Links() int {
	count := 0
	for r := range n.peers {
		count += n.peers[r].links
	}
	return count
}
