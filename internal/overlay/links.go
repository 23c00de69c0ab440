package overlay

import (
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// wanted returns the ranks to which this rank keeps links: for each distance that is a power of
// two, the first rank at or after it that answers. If the successor does not answer, the ranks
// after it may be stopped as well, so the next lookAhead ranks are wanted at once.
func (n *Node) wanted() (list []int) {
	size := len(n.peers)
	for d := 1; d < size; d *= 2 {
		need := 1
		for i := d; i < size && need > 0; i++ {
			r := (n.self + i) % size
			switch {
			case n.answers(r):
				need--
				if !slices.Contains(list, r) {
					list = append(list, r)
				}
			case d == 1 && need == 1 && n.present(r):
				need = lookAhead
			}
		}
	}
	return list
}

// unlinked returns the wanted ranks to which there is no link.
func (n *Node) unlinked() []int {
	return slices.DeleteFunc(n.wanted(), n.linked)
}

// surplus returns the ranks to which this rank has made a link that neither side wants.
func (n *Node) surplus() (list []int) {
	var want []int
	for _, r := range n.active {
		if n.peers[r].made == 0 || !n.answers(r) {
			continue
		}
		if want == nil {
			want = n.wanted()
		}
		d := (n.self - r + len(n.peers)) % len(n.peers)
		if !slices.Contains(want, r) && d&(d-1) != 0 {
			list = append(list, r)
		}
	}
	return list
}

// relink dials the wanted ranks without a link. If there are none, it drops surplus links.
func (n *Node) relink(now time.Time) {
	if n.quiescent() && now.Before(n.buildAt) || n.leaving && n.attached() {
		return
	}
	missing := n.unlinked()
	if len(missing) == 0 {
		for _, r := range n.surplus() {
			n.unlink(&n.peers[r], true)
			n.act(Action{Do: Unlink, Rank: r})
		}
		return
	}
	for i, r := range missing {
		if i > 0 && n.quiescent() && len(n.peers) > largeJob {
			break // one link per tick
		}
		n.dial(now, r)
	}
}

// isolated reports whether there are ranks that answer, and none of them has a link with this rank.
func (n *Node) isolated() bool {
	answer := false
	for r := range n.peers {
		if n.other(r) && n.answers(r) {
			if n.linked(r) {
				return false
			}
			answer = true
		}
	}
	return answer
}

// apart reports whether this rank must not act on losses and causes yet: it can forward them to no
// rank, and is connecting to one. If the process acted now and exited, another rank could take the
// exit for the cause. After SuspectAfter the rank acts without a link.
func (n *Node) apart(now time.Time) bool {
	return n.canDial && !n.leaving && n.isolated() && (n.apartSince.IsZero() || now.Sub(n.apartSince) < SuspectAfter)
}

// notify has this rank's groups notified of a loss or a cause, when the rank is not apart.
func (n *Node) notify(now time.Time, a Action) {
	if len(n.held) > 0 || n.apart(now) {
		n.held = append(n.held, a)
		return
	}
	n.act(a)
}

// releaseHeld performs the actions of notify that have waited for a link, and decides on the causes
// reported meanwhile.
func (n *Node) releaseHeld(now time.Time) {
	switch {
	case !n.isolated():
		n.apartSince = time.Time{}
	case n.apartSince.IsZero():
		n.apartSince = now
	}
	if n.apart(now) {
		return
	}
	n.actions = append(n.actions, n.held...)
	n.held = nil
	n.decide(now)
}

// reconnectIsolated dials at once if no rank that answers has a link with this rank. Without a
// link, other ranks could learn a fact, act on it and exit before this rank learns it. Goodbyes are
// acknowledged only when there is a link again, or after SuspectAfter.
func (n *Node) reconnectIsolated(now time.Time) {
	apart := n.canDial && !n.leaving && n.isolated()
	if apart {
		for i, r := range n.unlinked() {
			if i > 0 && len(n.peers) > largeJob {
				break // one link suffices to rejoin the ring
			}
			n.dial(now, r)
		}
	}
	if apart && now.Sub(n.unackedSince) < SuspectAfter {
		n.deferAcks()
		return
	}
	for _, a := range n.unacked {
		n.send(a.rank, &Message{Kind: Noted, Number: a.number})
	}
	n.unacked = nil
}

// deferAcks sends Here for goodbyes whose Noted must wait, so that this rank is not suspected
// meanwhile.
func (n *Node) deferAcks() {
	for i := range n.unacked {
		if a := &n.unacked[i]; !a.deferred {
			a.deferred = true
			n.send(a.rank, &Message{Kind: Here})
		}
	}
}

// attached reports whether there is a link on which a rank answers, or has acknowledged this rank's
// goodbye.
func (n *Node) attached() bool {
	for r := range n.peers {
		if n.other(r) && n.linked(r) && (n.answers(r) || n.peers[r].acked) {
			return true
		}
	}
	return false
}

// largeJob is the largest number of ranks in which a rank makes all its links at once.
const largeJob = 32

// quiescent reports whether there is no urgent fact to spread.
func (n *Node) quiescent() bool {
	if n.leaving || len(n.pending) > 0 || n.losses > 0 {
		return false
	}
	for _, r := range n.active {
		if p := &n.peers[r]; p.status == present && p.suspected || p.unresolved() {
			return false
		}
	}
	return true
}

// dial requests a connection to a rank, unless a dial is in progress.
func (n *Node) dial(now time.Time, rank int) {
	p := &n.peers[rank]
	if p.dialing {
		return
	}
	n.markActive(rank)
	p.dialing, p.dialedAt = true, now
	if p.askedAt.IsZero() {
		p.askedAt = now
	}
	n.act(Action{Do: Dial, Rank: rank})
}

// LinkUp records a new link with a rank. made reports that this rank dialed it.
func (n *Node) LinkUp(now time.Time, rank int, made bool) {
	n.markActive(rank)
	p := &n.peers[rank]
	if p.links == 0 {
		p.gotState = false // a State of an earlier link does not cover this one
	}
	p.links++
	if made {
		p.made++
		p.dialing = false
	}
	p.broken, p.unanswered, p.missingSince, p.cutOffSince = "", false, time.Time{}, time.Time{}
	p.askedAt, p.askAgain = time.Time{}, false // an Ask of an earlier link may not have arrived
	n.markAlive(rank)
	n.sendState(now, rank)
	if n.leaving {
		n.bye(now, rank)
	}
	n.arm(now)
}

// sendState sends everything that the other side of a new link must know.
func (n *Node) sendState(now time.Time, rank int) {
	m := &Message{Kind: State, Facts: slices.Clone(n.facts)}
	for _, group := range n.undecided() {
		m.Facts = append(m.Facts, &Message{Kind: Report, Cause: n.pending[group].cause})
	}
	m.Facts = append(m.Facts, n.positions...)
	n.send(rank, m)
	n.ask(now, rank)
}

// LinkDown records that a link with a rank has ended without a goodbye or a Drop. made reports that
// this rank had dialed it. A rank whose host answers is dialed once more before it is lost, because
// a connection can end while its process runs.
func (n *Node) LinkDown(now time.Time, rank int, made bool, reason engine.Loss) {
	n.markActive(rank)
	p := &n.peers[rank]
	n.unlink(p, made)
	switch {
	case p.status != present || p.links > 0 && reason != Silent:
	case n.leaving:
		p.suspected = true
	case reason == Silent || !n.canDial:
		n.lose(now, rank, reason)
	default:
		if p.gotState {
			p.broken = reason // otherwise the rank may have exited before it noticed the link
		}
		p.gotState = false
		n.dial(now, rank)
	}
	n.arm(now)
}

// LinkDropped records that the other side has dropped a link.
func (n *Node) LinkDropped(now time.Time, rank int, made bool) {
	n.unlink(&n.peers[rank], made)
	n.arm(now)
}

// unlink removes one link with a peer. With the last link the peer owes no acknowledgement any
// longer.
func (n *Node) unlink(p *peer, made bool) {
	p.links--
	if made {
		p.made--
	}
	if p.links == 0 {
		p.askedAt, p.askAgain, p.unackedByes = time.Time{}, false, 0
	}
}

// A DialResult is why a dial failed.
type DialResult uint8

// The results of a dial that failed.
const (
	Refused    DialResult = iota // nothing listens at the address, or another process does
	Unanswered                   // a process listens and does not answer: it may be stopped
	CutOff                       // the host does not answer
)

// DialFailed records that a dial of a rank has failed. A rank with which there was a link has said
// no goodbye on it and is lost. Any other rank may have left in good order; see resolve.
func (n *Node) DialFailed(now time.Time, rank int, result DialResult) {
	n.markActive(rank)
	p := &n.peers[rank]
	p.dialing = false
	if p.links > 0 || p.status != present {
		n.arm(now)
		return
	}
	p.suspected, p.askedAt = true, time.Time{}
	switch {
	case n.leaving:
	case result == Unanswered:
		p.unanswered = true
	case result == CutOff && p.cutOffSince.IsZero():
		p.cutOffSince = p.dialedAt
	case result == Refused && p.broken != "":
		n.lose(now, rank, notListening)
	case result == Refused && p.missingSince.IsZero():
		p.missingSince = now
	}
	n.arm(now)
}

// unresolved reports whether a rank could not be reached and it is not known whether it is lost or has left.
func (p *peer) unresolved() bool {
	return p.status == present && (p.broken != "" || p.unanswered || !p.missingSince.IsZero() || !p.cutOffSince.IsZero())
}

// missingLimit is how long nothing may listen at a rank's address before the rank is lost. It is
// longer while another rank does not answer, because that rank may know of a departure.
func (n *Node) missingLimit() time.Duration {
	for _, r := range n.active {
		if p := &n.peers[r]; p.status == present && p.suspected && p.missingSince.IsZero() {
			return max(n.hostTimeout, missingFor)
		}
	}
	return missingFor
}

// resolve dials the ranks that could not be reached until each is connected, lost or has left.
func (n *Node) resolve(now time.Time) {
	if n.leaving {
		return
	}
	limit := n.missingLimit()
	for _, r := range slices.Clone(n.active) {
		switch p := &n.peers[r]; {
		case !p.unresolved():
		case !p.missingSince.IsZero() && now.Sub(p.missingSince) >= limit:
			n.lose(now, r, notListening)
		case !p.cutOffSince.IsZero() && now.Sub(p.cutOffSince) >= n.hostTimeout:
			n.lose(now, r, Silent)
		default:
			n.dial(now, r)
		}
	}
}

// ask requests an acknowledgement of all messages so far. A suspected rank is not asked.
func (n *Node) ask(now time.Time, rank int) {
	p := &n.peers[rank]
	switch {
	case !n.answers(rank) || !n.linked(rank):
	case !p.askedAt.IsZero():
		p.askAgain = true
	default:
		p.askedAt, p.askAgain = now, false
		p.lastAsk++
		n.send(rank, &Message{Kind: Ask, Number: p.lastAsk})
	}
}

// answered handles the acknowledgement of an Ask. Number 0 acknowledges a Bye whose Noted must
// wait.
func (n *Node) answered(now time.Time, rank int, number uint64) {
	p := &n.peers[rank]
	if number != p.lastAsk && number != 0 {
		return
	}
	p.askedAt = time.Time{}
	if p.askAgain {
		n.ask(now, rank)
	}
}

// markAlive records that a rank runs.
func (n *Node) markAlive(rank int) { n.peers[rank].suspected = false }

// suspect marks the ranks that have not answered in time.
func (n *Node) suspect(now time.Time) {
	for _, r := range n.active {
		p := &n.peers[r]
		limit := SuspectAfter
		if p.links == 0 {
			limit = suspectDial
		}
		if !p.askedAt.IsZero() && now.Sub(p.askedAt) >= limit {
			p.askedAt, p.askAgain = time.Time{}, false
			p.suspected = p.status == present
		}
	}
}

// restartTimers gives all ranks the full time to answer again.
func (n *Node) restartTimers(now time.Time) {
	for _, r := range n.active {
		if p := &n.peers[r]; !p.askedAt.IsZero() {
			p.askedAt = now
		}
	}
}
