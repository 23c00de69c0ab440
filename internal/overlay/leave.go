package overlay

import (
	"slices"
	"time"
)

// Leave begins to say goodbye on every link. The rank may exit when Gone reports true, or when its
// patience ends.
func (n *Node) Leave(now time.Time) {
	n.flushLeft(now)
	n.leaving = true
	for r := range n.peers {
		n.peers[r].uncovered = false
		if n.other(r) && n.linked(r) {
			n.bye(now, r)
		}
	}
	if n.reach {
		n.relink(now)
	}
	n.arm(now)
}

// bye says goodbye on a link. The peer acknowledges it, and every message before it, by Noted. Bye
// therefore takes the place of an Ask.
func (n *Node) bye(now time.Time, rank int) {
	n.byes++
	p := &n.peers[rank]
	p.owed++
	n.send(rank, &Message{Kind: Bye, Number: n.byes})
	if p.asked.IsZero() && n.answers(rank) {
		p.asked, p.more = now, false
		p.number++ // a Here that is on its way answers an earlier Ask
	}
}

// receiveBye takes a rank's goodbye. One more rank is notified before the goodbye is acknowledged,
// the others by the next tick: the fact must not be lost with this rank. See rejoin for the time of
// the acknowledgement.
//
// A rank that leaves itself, and has no link on which it can pass the fact on though other ranks
// answer, acknowledges without the number: the sender must find another rank. Otherwise two ranks
// that leave could acknowledge each other, and no rank that stays would know. A rank that leaves and
// does acknowledge the fact does not exit before a rank has acknowledged it in turn.
func (n *Node) receiveBye(now time.Time, from int, number uint64) {
	relay, others := -1, false
	for i := 1; i < len(n.peers); i++ {
		if r := (n.self + i) % len(n.peers); r != from && n.answers(r) {
			others = true
			if n.linked(r) {
				relay = r
				break
			}
		}
	}
	if n.here(from) && relay >= 0 {
		n.send(relay, &Message{Kind: Left, Ranks: append(slices.Clone(n.unsaid), from)})
	}
	n.learnLeft([]int{from})
	owes := slices.Contains(n.unsaid, from) || n.peers[from].uncovered
	switch {
	case n.leaving && others && relay < 0:
		number = 0
	case n.leaving && others && owes:
		n.cover = n.byes + 1
		for r := range n.peers {
			n.peers[r].noted = false
		}
	}
	if len(n.unnoted) == 0 {
		n.since = now
	}
	n.unnoted = append(n.unnoted, noted{rank: from, number: number})
}

// noted is the acknowledgement of a goodbye.
type noted struct {
	rank   int
	number uint64 // of the goodbye; 0: this rank cannot pass the departure on
	held   bool   // this rank has sent Here, because Noted must wait; see rejoin
}

// receiveNoted takes the acknowledgement of a goodbye.
func (n *Node) receiveNoted(from int, number uint64) {
	p := &n.peers[from]
	p.owed = max(p.owed-1, 0)
	if p.owed == 0 {
		p.asked, p.more = time.Time{}, false
	}
	p.noted = p.noted || number > 0 && number >= n.cover
}

// Gone reports whether this rank can exit. Every rank that answers on a link has acknowledged this
// rank's goodbye, and the departures that this rank has acknowledged; and at least one rank has that
// can pass them on, if any answers.
func (n *Node) Gone() bool {
	acknowledged, answer := false, false
	for r := range n.peers {
		if !n.other(r) {
			continue
		}
		p := &n.peers[r]
		if n.answers(r) && n.linked(r) && (p.owed > 0 || len(n.unsaid) > 0) {
			return false
		}
		acknowledged = acknowledged || p.noted
		answer = answer || n.answers(r)
	}
	return acknowledged || !answer
}
