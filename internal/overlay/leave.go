package overlay

import "time"

// Leave begins to say goodbye on every link. The rank may exit when Gone reports true, or when its
// patience ends.
func (n *Node) Leave(now time.Time) {
	n.flushLeft(now)
	n.leaving = true
	for r := range n.peers {
		if n.other(r) && n.linked(r) {
			n.bye(now, r)
		}
	}
	if n.reach {
		n.relink(now)
	}
	n.arm(now)
}

// bye says goodbye on a link, and so has everything before it acknowledged.
func (n *Node) bye(now time.Time, rank int) {
	n.peers[rank].owed++
	n.send(rank, &Message{Kind: Bye})
	n.ask(now, rank)
}

// receiveBye takes a rank's goodbye. One more rank is notified before the goodbye is acknowledged,
// the others by the next tick: the fact must not be lost with this rank. See rejoin for the
// acknowledgement.
func (n *Node) receiveBye(now time.Time, from int) {
	if n.here(from) {
		for i := 1; i < len(n.peers); i++ {
			if r := (n.self + i) % len(n.peers); r != from && n.linked(r) && n.answers(r) {
				n.send(r, &Message{Kind: Left, Ranks: []int{from}})
				break
			}
		}
	}
	n.learnLeft([]int{from})
	if len(n.unnoted) == 0 {
		n.since = now
	}
	n.unnoted = append(n.unnoted, from)
}

// Gone reports whether this rank can exit. Every rank that answers on a link has acknowledged this
// rank's goodbye, and the departures that this rank has acknowledged; and at least one rank has, if
// any answers.
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
