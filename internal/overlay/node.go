package overlay

import (
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// A Node is one rank's part of the control channel. It is not safe for concurrent use.
type Node struct {
	self    int
	peers   []peer
	touched []int         // sorted: the ranks whose peer may not be idle; ticks look at no others
	hosts   []int         // by rank: the lowest rank of the same host; nil: not known
	silence time.Duration // how long a host may not answer before its ranks are lost

	facts     []*Message         // in the order in which this rank learned them
	causes    map[string]*Cause  // the first causes by group, the newest maxCauses
	pending   map[string]*report // reported causes that are not decided on, by group
	unnoted   []noted            // goodbyes that are acknowledged when this rank has other links
	since     time.Time          // when the first of unnoted said goodbye
	unsaid    []int              // ranks that have left; the links are notified by the next tick
	positions []*Message         // the newest maxPositions that were forwarded
	seen      []uint64           // by rank: the number of its last Position
	told      uint64             // Positions of this rank

	losses  int       // ranks that are lost
	reach   bool      // this rank can dial; see Reach
	build   time.Time // when links to the wanted ranks are made, though nothing has happened
	next    time.Time // when Tick is due; zero: nothing is
	probe   time.Time // when the successor is asked again whether it runs
	leaving bool
	byes    uint64 // goodbyes that this rank has said
	cover   uint64 // the first of them whose acknowledgement covers all departures that it has acknowledged itself

	actions []Action
}

// A peer is what a Node knows of another rank.
type peer struct {
	links      int         // open links
	made       int         // of these, links that this rank has made and may drop
	dialed     time.Time   // when the last dial began
	broken     engine.Loss // why its last link ended without a goodbye; "": none has since the last link
	missing    time.Time   // since when nothing listens at its address; zero: something may
	cutOff     time.Time   // since when its host does not answer a dial; zero: it does
	asked      time.Time   // of the Ask, or the dial, that is not answered; zero: none
	number     uint64      // of the last Ask
	owed       int         // goodbyes that it has not acknowledged
	fate       fate
	greeted    bool // it has sent its State, so it forwards facts on its links
	dialing    bool // a dial is under way
	refused    bool // nothing listens at its address after its link broke; it is lost when this rank has a link
	unanswered bool // a dial was accepted by its host, and not answered: it may be stopped
	more       bool // messages were sent after the Ask that is not answered
	suspected  bool // it has not answered in time
	uncovered  bool // it has left, and the links were notified after this rank's last goodbye
	noted      bool // it has acknowledged a goodbye that covers all that this rank must pass on
}

// A fate is what has become of a rank. It changes once.
type fate uint8

const (
	here fate = iota
	left
	lost
)

const (
	// Pace is the time between two ticks while something is due.
	Pace = 100 * time.Millisecond
	// probePace is the time between two questions to the successor, by which stopped ranks are
	// found. In a large job it is longer by probePerRank for each rank, up to maxProbePace: the
	// ranks of one host may share few processors.
	probePace    = 200 * time.Millisecond
	probePerRank = 8 * time.Millisecond
	maxProbePace = 2 * time.Second
	// leftPace is how long departures are collected before they are forwarded.
	leftPace = 20 * time.Millisecond
	// SuspectAfter is how long a rank may take to acknowledge a message.
	SuspectAfter = 300 * time.Millisecond
	// suspectDial is how long a connection may take to be made.
	suspectDial = 200 * time.Millisecond
	// buildPerRank delays the making of links in a large job, which has better things to do when
	// it starts.
	buildPerRank = 4 * time.Millisecond
	// missingFor is how long nothing may listen at a rank's address before the rank is lost, if it
	// had no link with this rank. A rank that has left is found out meanwhile: another rank knows. That
	// rank may leave itself, and pass the fact on to a rank that turns out not to answer, and to
	// another one then. See missing.
	missingFor = 600 * time.Millisecond
	// decideAfter is how long the coordinator may take to decide on a cause; decidePerRank is how
	// much longer each rank after the next one waits.
	decideAfter   = 100 * time.Millisecond
	decidePerRank = 100 * time.Millisecond
	// lookAhead is how many ranks are dialed beyond one that is suspected: they may be stopped, too.
	lookAhead = 4
	// maxCauses and maxPositions bound what a rank remembers.
	maxCauses    = 1024
	maxPositions = 64
)

// Silent is how a rank is lost whose host did not answer.
const Silent = engine.HostSilent

// notListening is how a rank is lost at whose address nothing listens.
const notListening = engine.Exited

// New makes the Node of a rank. Silence is how long a host may not answer before its ranks are
// lost.
func New(rank, size int, silence time.Duration) *Node {
	return &Node{
		self: rank, peers: make([]peer, size), silence: silence, seen: make([]uint64, size),
		causes: make(map[string]*Cause), pending: make(map[string]*report),
	}
}

// Begin starts with the links of Join: rank 0 has one to each rank, the others one to rank 0.
func (n *Node) Begin() {
	for r := range n.peers {
		if n.other(r) && (r == 0 || n.self == 0) {
			n.touch(r)
			n.peers[r].links, n.peers[r].greeted = 1, true
		}
		if n.other(r) && r == 0 {
			n.peers[r].made = 1
		}
	}
}

// Hosts says which ranks share a host: the ranks that have the same number.
func (n *Node) Hosts(hosts []int) { n.hosts = slices.Clone(hosts) }

// Reach allows dials. Before it is called, a rank whose link has ended is lost.
func (n *Node) Reach(now time.Time) {
	n.reach = true
	n.build = now.Add(Pace + time.Duration(len(n.peers))*buildPerRank)
	n.probe = now.Add(Pace)
	n.arm(now)
}

// Take returns the actions since the last call.
func (n *Node) Take() []Action {
	list := n.actions
	n.actions = nil
	return list
}

// Next is when Tick is due. It reports false if nothing is.
func (n *Node) Next() (time.Time, bool) { return n.next, !n.next.IsZero() }

// arm schedules the next tick. Every input ends with it.
func (n *Node) arm(now time.Time) {
	n.rejoin(now)
	var next time.Time
	switch {
	case len(n.unsaid) > 0:
		next = now.Add(leftPace)
	case n.due():
		next = now.Add(Pace)
	case !n.reach || n.successor() < 0:
		return
	default:
		next = n.probe
	}
	if n.next.IsZero() || next.Before(n.next) {
		n.next = next
	}
}

// askSuccessor asks the next rank whether it runs. Every rank is some rank's successor, so every
// stopped rank is found.
func (n *Node) askSuccessor(now time.Time) {
	r := n.successor()
	if r < 0 || !n.reach || now.Before(n.probe) {
		return
	}
	n.probe = now.Add(min(max(probePace, time.Duration(len(n.peers))*probePerRank), maxProbePace))
	n.ask(now, r)
}

// due reports whether the next tick has something to do.
func (n *Node) due() bool {
	if len(n.pending) > 0 || len(n.unnoted) > 0 || n.leaving {
		return true
	}
	for _, r := range n.touched {
		if p := &n.peers[r]; !p.asked.IsZero() || p.unresolved() {
			return true
		}
	}
	return n.reach && (len(n.unlinked()) > 0 || len(n.surplus()) > 0)
}

// Tick does what is due.
func (n *Node) Tick(now time.Time) {
	if late := now.Sub(n.next); !n.next.IsZero() && late > 3*Pace {
		n.excuse(now) // this process itself did not run
	}
	n.next = time.Time{}
	n.touched = slices.DeleteFunc(n.touched, func(r int) bool { return n.peers[r].idle() })
	n.flushLeft(now)
	n.suspect(now)
	if n.reach {
		n.relink(now)
	}
	n.resolve(now)
	n.decide(now)
	n.askSuccessor(now)
	n.arm(now)
}

// touch notes that a peer is about to change.
func (n *Node) touch(rank int) {
	if i, found := slices.BinarySearch(n.touched, rank); !found {
		n.touched = slices.Insert(n.touched, i, rank)
	}
}

// idle reports whether a tick has nothing to do with the peer.
func (p *peer) idle() bool {
	return p.links == 0 && p.asked.IsZero() && !p.dialing && (p.fate != here || !p.suspected && !p.unresolved())
}

func (n *Node) other(rank int) bool  { return rank != n.self }
func (n *Node) valid(rank int) bool  { return rank >= 0 && rank < len(n.peers) }
func (n *Node) here(rank int) bool   { return n.peers[rank].fate == here }
func (n *Node) linked(rank int) bool { return n.peers[rank].links > 0 }

// answers reports whether a rank is here and not suspected.
func (n *Node) answers(rank int) bool { return n.here(rank) && !n.peers[rank].suspected }

// successor is the first rank after this one that answers; -1: there is none.
func (n *Node) successor() int {
	for i := 1; i < len(n.peers); i++ {
		if r := (n.self + i) % len(n.peers); n.answers(r) {
			return r
		}
	}
	return -1
}

// Present reports whether a rank is neither lost nor has left, as far as this rank knows.
func (n *Node) Present(rank int) bool { return n.here(rank) }

// Dependents is the number of ranks that run and may have no link but that with this rank. Only rank
// 0 has any, until links are built.
func (n *Node) Dependents(now time.Time) int {
	if n.self != 0 || !n.reach || !now.Before(n.build) {
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

// Links is the number of open links.
func (n *Node) Links() int {
	count := 0
	for r := range n.peers {
		count += n.peers[r].links
	}
	return count
}
