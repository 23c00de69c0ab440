package overlay

import (
	"slices"
	"time"
)

// Leave begins to say goodbye on every link. The rank may exit when MayExit reports true. The owner
// bounds the wait.
func (n *Node) Leave(now time.Time) {
	n.flushLeft(now)
	n.leaving = true
	for r := range n.peers {
		n.peers[r].uncovered = false
		if n.other(r) && n.linked(r) {
			n.bye(now, r)
		}
	}
	if n.canDial {
		n.relink(now)
	}
	n.arm(now)
}

// bye says goodbye on a link. The peer's Noted acknowledges the goodbye and every message before
// it, so a Bye replaces an Ask.
func (n *Node) bye(now time.Time, rank int) {
	n.byes++
	p := &n.peers[rank]
	p.unackedByes++
	n.send(rank, &Message{Kind: Bye, Number: n.byes})
	if p.askedAt.IsZero() && n.answers(rank) {
		p.askedAt, p.askAgain = now, false
		p.lastAsk++ // a Here in transit answers an earlier Ask
	}
}

// receiveBye handles a rank's goodbye. One more rank is notified before the goodbye is
// acknowledged, so that the fact is not lost with this rank. The other ranks are notified by the
// next tick. See reconnectIsolated for the time of the acknowledgement.
//
// A rank that leaves itself acknowledges without a number if it has no link on which it can forward
// the fact although other ranks answer. The sender must then find another rank. Otherwise two
// leaving ranks could acknowledge each other, and no rank that stays would know. A leaving rank
// that does acknowledge the fact does not exit before another rank has acknowledged it in turn.
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
	if n.present(from) && relay >= 0 {
		n.send(relay, &Message{Kind: Left, Ranks: append(slices.Clone(n.unforwarded), from)})
	}
	n.learnLeft([]int{from})
	owes := slices.Contains(n.unforwarded, from) || n.peers[from].uncovered
	switch {
	case n.leaving && others && relay < 0:
		number = 0
	case n.leaving && others && owes:
		n.coverBye = n.byes + 1
		for r := range n.peers {
			n.peers[r].acked = false
		}
	}
	if len(n.unacked) == 0 {
		n.unackedSince = now
	}
	n.unacked = append(n.unacked, byeAck{rank: from, number: number})
}

// A byeAck is an acknowledgement of a goodbye that is not sent yet.
type byeAck struct {
	rank     int
	number   uint64 // of the goodbye; 0: this rank cannot forward the departure
	deferred bool   // this rank has sent Here because Noted must wait; see reconnectIsolated
}

// receiveNoted handles the acknowledgement of a goodbye.
func (n *Node) receiveNoted(from int, number uint64) {
	p := &n.peers[from]
	p.unackedByes = max(p.unackedByes-1, 0)
	if p.unackedByes == 0 {
		p.askedAt, p.askAgain = time.Time{}, false
	}
	p.acked = p.acked || number > 0 && number >= n.coverBye
}

// MayExit reports whether this rank can exit. Every rank that answers on a link must have
// acknowledged this rank's goodbye and the departures that this rank has acknowledged. If any rank
// answers, at least one rank that can forward the departures must have acknowledged.
func (n *Node) MayExit() bool {
	acknowledged, answer := false, false
	for r := range n.peers {
		if !n.other(r) {
			continue
		}
		p := &n.peers[r]
		if n.answers(r) && n.linked(r) && (p.unackedByes > 0 || len(n.unforwarded) > 0) {
			return false
		}
		acknowledged = acknowledged || p.acked
		answer = answer || n.answers(r)
	}
	return acknowledged || !answer
}
