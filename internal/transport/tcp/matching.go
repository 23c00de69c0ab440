package tcp

import (
	"cmp"
	"errors"
	"slices"

	"github.com/tutti-go/tutti/internal/match"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// postReceive passes a receive to the inbox. A receive from any rank fails if all other ranks are
// lost and no message of this rank itself fits. The caller holds s.mu.
func (s *messenger) postReceive(x *msgState) {
	if a := s.inbox.Post(&x.receive); a != nil {
		offer := a.Owner.(*msgState)
		offer.peer.numAnnounced--
		s.match(x, offer)
		return
	}
	if x.peer != nil {
		return
	}
	s.anyWaiting++
	if s.allLost() {
		s.inbox.Cancel(&x.receive)
		s.finish(x, s.lostErr)
	}
}

// announce passes an announcement to the inbox. The caller holds s.mu.
func (s *messenger) announce(offer *msgState, tag int) {
	offer.announcement = match.Announcement{From: offer.peer.peer, Tag: tag, Owner: offer}
	s.matchWaiting(s.inbox.Announce(&offer.announcement), offer)
}

// matchWaiting matches an announcement with the receive that the inbox has chosen for it. Without one
// the announcement waits in the inbox. The caller holds s.mu.
func (s *messenger) matchWaiting(r *match.Receive, offer *msgState) {
	if r == nil {
		offer.peer.numAnnounced++
		return
	}
	x := r.Owner.(*msgState)
	if x.peer == nil {
		s.anyWaiting--
	}
	s.match(x, offer)
}

// match matches a receive that does not wait in the inbox with an announcement. Finish of the receive
// continues. The caller holds s.mu.
func (s *messenger) match(x, offer *msgState) {
	p := offer.peer
	if x.peer == nil {
		x.peer = p
		s.addOpen(p)
	}
	x.offer, x.id, x.length = offer, offer.id, offer.length
	p.recvs[x.id] = x
	m := x.msg
	m.From, m.Kind, m.Len = p.peer, offer.kind, offer.length
	m.Matched.Store(true)
	x.signal()
}

// accept asks the handler for a matched receive and clears the sender, unless w has ended. The caller
// holds s.mu, which is released while w is checked.
func (s *messenger) accept(w *wait.Waiter, x *msgState) error {
	offer := x.offer
	s.mu.Unlock()
	_, err := w.Check()
	s.mu.Lock()
	if err != nil || x.done || x.offer != offer {
		return err
	}
	if err := s.handler.Accept(x.msg); err != nil {
		return err
	}
	x.offer, x.cleared = nil, true
	p := x.peer
	if p.self {
		s.deliverSelf(x, offer)
	} else {
		p.out.push(outHeader{kind: kindClear, id: x.id})
		offer.done = true
		s.recycle(offer)
		if p.link != nil {
			s.writeOut(p)
		}
	}
	s.wakeDriver()
	return nil
}

// deliverSelf copies a message from this rank to itself. The caller holds s.mu.
func (s *messenger) deliverSelf(x, send *msgState) {
	delete(x.peer.sends, x.id)
	delete(x.peer.recvs, x.id)
	send.msg.Matched.Store(true)
	for at := 0; at < x.length; at += copyPieceBytes {
		copyBody(x.msg.Body[at:x.length], send.msg.Body[at:])
	}
	s.finish(x, nil)
	s.finish(send, nil)
}

// copyPieceBytes bounds one copy, so that the garbage collector can stop the goroutine between two.
const copyPieceBytes = 128 << 10

// copyBody copies at most copyPieceBytes.
//
//go:noinline
func copyBody(to, from []byte) { copy(to[:min(len(to), copyPieceBytes)], from) }

// finish completes a message, which is done and does not wait in the inbox. The caller holds s.mu.
func (s *messenger) finish(x *msgState, err error) {
	s.removeOpen(x)
	x.finish(err)
}

// withdraw ends a message that is not done. Its body is not accessed afterwards. An announcement that
// a receive was matched with waits for another receive. A cleared receive stays known until the peer
// has sent the data, which is discarded. If the peer is lost, nothing is left to do. The caller holds
// s.mu.
func (s *messenger) withdraw(x *msgState) {
	m, p := x.msg, x.peer
	x.msg, m.OtherTag = nil, nil
	if p != nil && p.err != nil {
		return
	}
	s.removeOpen(x)
	switch {
	case m.Send:
		p.withdrawSend(x)
	case x.cleared:
	case x.offer == nil:
		s.inbox.Cancel(&x.receive)
		m.OtherTag = s.inbox.OtherTag(x.receive.From)
		x.done = true
	default:
		delete(p.recvs, x.id)
		m.Matched.Store(false)
		s.matchWaiting(s.inbox.Return(&x.offer.announcement), x.offer)
		x.done = true
	}
}

// addOpen counts a message of a peer as open and makes the peer active. The caller holds s.mu.
func (s *messenger) addOpen(p *peerMessages) {
	p.open++
	s.list(p)
}

// removeOpen undoes the count of an open message. The caller holds s.mu.
func (s *messenger) removeOpen(x *msgState) {
	if x.peer != nil {
		x.peer.open--
	} else {
		s.anyWaiting--
	}
}

// retract ends the match of a receive whose message the sender has withdrawn. A receive from any rank
// waits for another message.
func (s *messenger) retract(x *msgState) {
	p := x.peer
	delete(p.recvs, x.id)
	switch {
	case x.msg == nil:
	case x.receive.From == match.AnyRank:
		p.open--
		s.postAgain(x)
	default:
		s.finish(x, &transport.LostError{Peer: p.peer, Err: errWithdrawn})
	}
}

// postAgain posts a receive from any rank again. The caller holds s.mu.
func (s *messenger) postAgain(x *msgState) {
	x.peer, x.offer, x.cleared, x.moved = nil, nil, false, 0
	x.msg.Matched.Store(false)
	s.postReceive(x)
}

// allLost reports whether no other rank can send to this one. The caller holds s.mu.
func (s *messenger) allLost() bool { return s.m.size > 1 && s.lost == s.m.size-1 }

// failPeer ends what waits in the inbox for a lost peer, which is counted in s.lost, and the receives
// from any rank if it was the last peer. The caller holds s.mu.
func (s *messenger) failPeer(p *peerMessages) {
	var announced []*match.Announcement
	s.inbox.EachAnnouncement(func(a *match.Announcement) {
		if a.From == p.peer {
			announced = append(announced, a)
		}
	})
	for _, a := range announced {
		s.inbox.Withdraw(a)
	}
	s.failReceives(p.err, func(r *match.Receive) bool {
		return r.From == p.peer || r.From == match.AnyRank && s.allLost()
	})
}

// failReceives ends the waiting receives that which selects. The caller holds s.mu.
func (s *messenger) failReceives(err error, which func(*match.Receive) bool) {
	var list []*match.Receive
	s.inbox.EachReceive(func(r *match.Receive) {
		if which(r) {
			list = append(list, r)
		}
	})
	for _, r := range list {
		s.inbox.Cancel(r)
		s.finish(r.Owner.(*msgState), err)
	}
}

// failMatched ends the matched receives of a lost peer. Receives from any rank are posted again, in
// their order, unless data was damaged. The caller holds s.mu.
func (s *messenger) failMatched(p *peerMessages) {
	damaged := errors.As(p.err, new(*transport.CorruptError))
	var again []*msgState
	for _, x := range p.recvs {
		if x.msg != nil && x.receive.From == match.AnyRank && !damaged {
			again = append(again, x)
		} else {
			p.abandon(x)
		}
	}
	clear(p.recvs)
	slices.SortFunc(again, func(x, y *msgState) int { return cmp.Compare(x.id, y.id) })
	for _, x := range again {
		s.postAgain(x)
	}
}
