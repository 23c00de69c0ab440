package overlay

import (
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// wanted are the ranks to which this rank keeps links: the first rank that answers at or after each
// distance that is a power of two. Beyond a successor that does not answer there may be more of
// them, so the next few are wanted at once.
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
			case d == 1 && need == 1 && n.here(r):
				need = lookAhead
			}
		}
	}
	return list
}

// unlinked are the wanted ranks to which there is no link.
func (n *Node) unlinked() []int {
	return slices.DeleteFunc(n.wanted(), n.linked)
}

// surplus are the ranks to which this rank has made a link that neither side wants.
func (n *Node) surplus() (list []int) {
	var want []int
	for _, r := range n.touched {
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

// relink makes the links that are wanted, and drops links that are not.
func (n *Node) relink(now time.Time) {
	if n.calm() && now.Before(n.build) || n.leaving && n.attached() {
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
		if i > 0 && n.calm() && len(n.peers) > largeJob {
			break // one link at a time
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

// rejoin makes a new link at once if this rank has lost its last one: until then the other ranks could
// learn a fact, act on it and exit without this rank. Goodbyes are acknowledged when it has one.
func (n *Node) rejoin(now time.Time) {
	apart := n.reach && !n.leaving && n.isolated()
	if apart {
		for i, r := range n.unlinked() {
			if i > 0 && len(n.peers) > largeJob {
				break // a ring suffices
			}
			n.dial(now, r)
		}
	}
	if apart && now.Sub(n.since) < SuspectAfter {
		n.hold()
		return
	}
	for _, a := range n.unnoted {
		n.send(a.rank, &Message{Kind: Noted, Number: a.number})
	}
	n.unnoted = nil
}

// hold answers goodbyes whose Noted must wait, so that this rank is not suspected meanwhile.
func (n *Node) hold() {
	for i := range n.unnoted {
		if a := &n.unnoted[i]; !a.held {
			a.held = true
			n.send(a.rank, &Message{Kind: Here})
		}
	}
}

// attached reports whether there is a link on which a rank answers, or has acknowledged this rank's
// goodbye.
func (n *Node) attached() bool {
	for r := range n.peers {
		if n.other(r) && n.linked(r) && (n.answers(r) || n.peers[r].noted) {
			return true
		}
	}
	return false
}

// largeJob is the number of ranks up to which a rank makes all its links at once.
const largeJob = 32

// calm reports whether nothing has happened that is urgent to spread.
func (n *Node) calm() bool {
	if n.leaving || len(n.pending) > 0 || n.losses > 0 {
		return false
	}
	for _, r := range n.touched {
		if p := &n.peers[r]; p.fate == here && p.suspected || p.unresolved() {
			return false
		}
	}
	return true
}

// dial connects to a rank, unless that is under way.
func (n *Node) dial(now time.Time, rank int) {
	p := &n.peers[rank]
	if p.dialing {
		return
	}
	n.touch(rank)
	p.dialing, p.dialed = true, now
	if p.asked.IsZero() {
		p.asked = now
	}
	n.act(Action{Do: Dial, Rank: rank})
}

// LinkUp notes a new link with a rank. Made says that this rank has made it.
func (n *Node) LinkUp(now time.Time, rank int, made bool) {
	n.touch(rank)
	p := &n.peers[rank]
	if p.links == 0 {
		p.greeted = false // what came on earlier links says nothing of this one
	}
	p.links++
	if made {
		p.made++
		p.dialing = false
	}
	p.broken, p.refused, p.unanswered, p.missing, p.cutOff = "", false, false, time.Time{}, time.Time{}
	p.asked, p.more = time.Time{}, false // what was asked on an earlier link may not have arrived
	n.heard(rank)
	n.share(now, rank)
	if n.leaving {
		n.bye(now, rank)
	} else {
		n.loseRefused(now)
	}
	n.arm(now)
}

// loseRefused finds the losses that waited for a link. A rank without one cannot forward a loss before
// it acts on it: the process could exit because of the loss, and another rank could take that for the
// cause.
func (n *Node) loseRefused(now time.Time) {
	for _, r := range slices.Clone(n.touched) {
		if p := &n.peers[r]; p.refused && p.fate == here {
			p.refused = false
			n.lose(now, r, p.broken)
		}
	}
}

// share sends everything that a new link must know.
func (n *Node) share(now time.Time, rank int) {
	m := &Message{Kind: State, Facts: slices.Clone(n.facts)}
	for _, group := range n.undecided() {
		m.Facts = append(m.Facts, &Message{Kind: Report, Cause: n.pending[group].cause})
	}
	m.Facts = append(m.Facts, n.positions...)
	n.send(rank, m)
	n.ask(now, rank)
}

// LinkDown notes that a link with a rank has ended without a goodbye or a Drop. Made says which side
// had made it. A rank whose host answers is dialed once more before it is lost: a connection can end
// alone.
func (n *Node) LinkDown(now time.Time, rank int, made bool, reason engine.Loss) {
	n.touch(rank)
	p := &n.peers[rank]
	n.unlink(p, made)
	switch {
	case p.fate != here || p.links > 0 && reason != Silent:
	case n.leaving:
		p.suspected = true
	case reason == Silent || !n.reach:
		n.lose(now, rank, reason)
	default:
		if p.greeted {
			p.broken = reason // otherwise the rank may have exited before it knew of the link
		}
		p.greeted = false
		n.dial(now, rank)
	}
	n.arm(now)
}

// LinkDropped notes that the other side uses a link no more.
func (n *Node) LinkDropped(now time.Time, rank int, made bool) {
	n.unlink(&n.peers[rank], made)
	n.arm(now)
}

func (n *Node) unlink(p *peer, made bool) {
	p.links--
	if made {
		p.made--
	}
	if p.links == 0 {
		p.asked, p.more, p.owed = time.Time{}, false, 0
	}
}

// A DialResult is why a dial failed.
type DialResult uint8

// The results of a dial that failed.
const (
	Refused    DialResult = iota // nothing listens at the address, or another process does
	Unanswered                   // a process listens, and does not answer: it may be stopped
	CutOff                       // the host does not answer
)

// DialFailed notes that a rank cannot be reached. A rank with which there was a link has said no
// goodbye on it, and is lost. Any other rank may have left in good order: see resolve.
func (n *Node) DialFailed(now time.Time, rank int, result DialResult) {
	n.touch(rank)
	p := &n.peers[rank]
	p.dialing = false
	if p.links > 0 || p.fate != here {
		n.arm(now)
		return
	}
	p.suspected, p.asked = true, time.Time{}
	switch {
	case n.leaving:
	case result == Unanswered:
		p.unanswered = true
	case result == CutOff && p.cutOff.IsZero():
		p.cutOff = p.dialed
	case result == Refused && p.broken != "" && n.isolated():
		p.refused = true // see loseRefused
	case result == Refused && p.broken != "":
		n.lose(now, rank, p.broken)
	case result == Refused && p.missing.IsZero():
		p.missing = now
	}
	n.arm(now)
}

// unresolved reports whether a rank could not be reached, and it is not known what becomes of it.
func (p *peer) unresolved() bool {
	return p.fate == here && (p.broken != "" || p.unanswered || !p.missing.IsZero() || !p.cutOff.IsZero())
}

// patience is how long nothing may listen at a rank's address before the rank is lost. If another
// rank does not answer, that rank may be the one that knows of a departure.
func (n *Node) patience() time.Duration {
	for _, r := range n.touched {
		if p := &n.peers[r]; p.fate == here && p.suspected && p.missing.IsZero() {
			return max(n.silence, missingFor)
		}
	}
	return missingFor
}

// resolve dials ranks that could not be reached until their fate is known.
func (n *Node) resolve(now time.Time) {
	if n.leaving {
		return
	}
	patience := n.patience()
	for _, r := range slices.Clone(n.touched) {
		switch p := &n.peers[r]; {
		case !p.unresolved():
		case !p.missing.IsZero() && now.Sub(p.missing) >= patience:
			n.lose(now, r, notListening)
		case !p.cutOff.IsZero() && now.Sub(p.cutOff) >= n.silence:
			n.lose(now, r, Silent)
		default:
			n.dial(now, r)
		}
	}
}

// ask has a rank acknowledge what it was sent. A rank that is suspected is not asked.
func (n *Node) ask(now time.Time, rank int) {
	p := &n.peers[rank]
	switch {
	case !n.answers(rank) || !n.linked(rank):
	case !p.asked.IsZero():
		p.more = true
	default:
		p.asked, p.more = now, false
		p.number++
		n.send(rank, &Message{Kind: Ask, Number: p.number})
	}
}

// answered takes the acknowledgement of an Ask, or of a Bye whose Noted must wait: that one has no
// number.
func (n *Node) answered(now time.Time, rank int, number uint64) {
	p := &n.peers[rank]
	if number != p.number && number != 0 {
		return
	}
	p.asked = time.Time{}
	if p.more {
		n.ask(now, rank)
	}
}

// heard notes that a rank runs.
func (n *Node) heard(rank int) { n.peers[rank].suspected = false }

// suspect finds the ranks that have not answered in time.
func (n *Node) suspect(now time.Time) {
	for _, r := range n.touched {
		p := &n.peers[r]
		limit := SuspectAfter
		if p.links == 0 {
			limit = suspectDial
		}
		if !p.asked.IsZero() && now.Sub(p.asked) >= limit {
			p.asked, p.more = time.Time{}, false
			p.suspected = p.fate == here
		}
	}
}

// excuse gives all ranks new time to answer.
func (n *Node) excuse(now time.Time) {
	for _, r := range n.touched {
		if p := &n.peers[r]; !p.asked.IsZero() {
			p.asked = now
		}
	}
}
