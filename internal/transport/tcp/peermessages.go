package tcp

import (
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/internal/transport"
)

const (
	// piece is how much of a message is sent before others get their turn.
	maxPieceBytes = 1 << 20
	// maxEarly bounds the announcements of one peer that no receive was
	// posted for.
	maxAnnounced = 1 << 20
	// copyPiece is how much is copied at once.
	copyPieceBytes = 128 << 10
)

// A pair is the messages between this rank and one peer, both ways. A send is
// announced with its tag, length and head; when a receive meets the
// announcement it clears the send by its id; then the data comes. The
// messenger's lock guards it.
type peerMessages struct {
	messenger *messenger
	peer      int
	self      bool  // the peer is this rank
	listed    bool  // among the messenger's active pairs
	link      *link // nil: not yet connected, or this rank itself
	err       error // why nothing moves any more
	open      int   // messages that are not done

	posted       tags // receives that wait for an announcement
	announced    tags // announcements that wait for a receive; of an own pair, sends
	numAnnounced int

	lastID     uint64               // of this rank's announcements
	lastPeerID uint64               // of the peer's
	sends      map[uint64]*msgState // announced
	recvs      map[uint64]*msgState // cleared

	out        outQueue
	writing    *msgState // whose data is being written; nil: none
	reading    *msgState // whose data is being read
	pieceLeft  int       // how much of that piece is still to come
	pieceBytes int       // of all of that piece
	pieceSum   uint64    // its checksum; zero: it has none
	discard    []byte    // where data goes that nobody wants any more
}

func (p *peerMessages) setup(s *messenger, peer int) {
	p.messenger, p.peer, p.self = s, peer, peer == s.m.rank
	p.posted, p.announced = make(tags), make(tags)
	p.sends, p.recvs = make(map[uint64]*msgState), make(map[uint64]*msgState)
}

// announce starts a send.
func (p *peerMessages) postSend(x *msgState) {
	if p.self {
		if r := p.posted.pop(x.msg.Tag); r != nil {
			r.selfSend = x
			p.match(r, 0, len(x.msg.Body), &x.msg.Head)
			return
		}
		p.announced.push(x.msg.Tag, x)
		return
	}
	p.lastID++
	x.id = p.lastID
	p.sends[x.id] = x
	p.out.push(outHeader{kindReady, x.id, x})
}

// expect starts a receive.
func (p *peerMessages) postReceive(x *msgState) {
	a := p.announced.pop(x.msg.Tag)
	switch {
	case a == nil:
		p.posted.push(x.msg.Tag, x)
	case p.self:
		x.selfSend = a
		p.match(x, 0, len(a.msg.Body), &a.msg.Head)
	default:
		p.numAnnounced--
		p.match(x, a.id, a.length, &a.head)
		a.done = true
		p.messenger.recycle(a)
	}
}

// match lets a receive meet its announcement. If the receive has a say in it,
// its own Finish goes on.
func (p *peerMessages) match(x *msgState, id uint64, length int, head *transport.Head) {
	x.id, x.length, x.matched = id, length, true
	x.msg.Head = *head
	if x.msg.Accept != nil || length != len(x.msg.Body) {
		x.signal()
		return
	}
	p.clearSend(x)
}

// accept asks a receive that is matched, and clears its sender. A sender that
// is not cleared waits until it is told to stop.
func (p *peerMessages) accept(x *msgState) error {
	m := x.msg
	if x.length != len(m.Body) {
		return &transport.LengthError{Peer: p.peer, Want: len(m.Body), Sent: x.length}
	}
	if m.Accept != nil {
		if err := m.Accept(&m.Head); err != nil {
			return err
		}
	}
	p.clearSend(x)
	return nil
}

func (p *peerMessages) clearSend(x *msgState) {
	x.cleared = true
	if p.self {
		p.deliverSelf(x)
		return
	}
	p.recvs[x.id] = x
	p.out.push(outHeader{kind: kindClear, id: x.id})
}

// deliver copies a message from this rank to itself.
func (p *peerMessages) deliverSelf(x *msgState) {
	from := x.selfSend
	x.selfSend = nil
	if from.msg == nil {
		p.finish(x, &transport.LostError{Peer: p.peer, Err: errWithdrawn})
		return
	}
	for at := 0; at < len(x.msg.Body); at += copyPieceBytes {
		copyBody(x.msg.Body[at:], from.msg.Body[at:])
	}
	p.finish(x, nil)
	p.finish(from, nil)
}

// copyBody copies a piece of a body. The collector can stop it between two.
//
//go:noinline
func copyBody(to, from []byte) { copy(to[:min(len(to), copyPieceBytes)], from) }

// close counts a message out.
func (p *peerMessages) finish(x *msgState, err error) {
	p.open--
	x.finish(err)
}

// fail ends all messages with a peer, now and later.
func (p *peerMessages) fail(err error) {
	if p.err != nil {
		return
	}
	p.err = err
	for _, x := range p.sends {
		p.abandon(x, err)
	}
	for _, x := range p.recvs {
		p.abandon(x, err)
	}
	for _, t := range []tags{p.posted, p.announced} {
		for _, q := range t {
			for x := q.first; x != nil; x = x.next {
				p.abandon(x, err)
			}
		}
	}
	p.open = 0
	p.out = outQueue{}
	p.writing, p.reading = nil, nil
	clear(p.sends)
	clear(p.recvs)
	clear(p.posted)
	clear(p.announced)
}

// abandon ends one message of a pair that has failed.
func (p *peerMessages) abandon(x *msgState, err error) {
	if x.msg != nil && !x.done {
		x.finish(err)
	}
}

// withdraw gives up a message that is not done. Its body is not touched
// afterwards.
func (p *peerMessages) withdraw(x *msgState) {
	m := x.msg
	x.msg = nil
	if p.err != nil {
		return
	}
	p.open--
	switch {
	case m.Send && p.self:
		p.announced.remove(m.Tag, x)
	case m.Send:
		p.withdrawSend(x)
	case !x.matched:
		p.posted.remove(m.Tag, x)
	}
}

// unsend withdraws a send. One that was announced stays known, so that its
// receiver can be told.
func (p *peerMessages) withdrawSend(x *msgState) {
	if p.writing == x || x.moved > 0 {
		// The peer waits for the rest of the body, and must learn at once that
		// it will not come; there may be no room to say so.
		p.link.abort()
		p.fail(&transport.LostError{Peer: p.peer, Err: errors.New("a message to it was given up in the middle")})
		return
	}
	w := p.out.find(x)
	switch {
	case w == nil: // the peer's answer is still to come
	case w.kind == kindReady:
		p.out.remove(w)
		delete(p.sends, x.id)
	default:
		*w = outHeader{kind: kindWithdrawn, id: x.id}
	}
}

// heard acts on a header.
func (p *peerMessages) handleHeader() error {
	h := &p.link.in.header
	switch h.kind {
	case kindReady:
		return p.handleReady(h)
	case kindClear:
		x := p.sends[h.id]
		if x == nil {
			return fmt.Errorf("it wants message %d, which was not announced", h.id)
		}
		delete(p.sends, h.id)
		if x.msg == nil {
			p.out.push(outHeader{kind: kindWithdrawn, id: h.id})
			return nil
		}
		p.out.push(outHeader{kindData, h.id, x})
	case kindData:
		x := p.recvs[h.id]
		if x == nil || h.length > x.length-x.moved {
			return fmt.Errorf("it sent %d bytes of message %d, which nobody waits for", h.length, h.id)
		}
		p.reading, p.pieceLeft, p.pieceBytes, p.pieceSum = x, h.length, h.length, h.sum
	case kindWithdrawn:
		x := p.recvs[h.id]
		if x == nil {
			return fmt.Errorf("it gave up message %d, which nobody waits for", h.id)
		}
		delete(p.recvs, h.id)
		if x.msg != nil {
			p.finish(x, &transport.LostError{Peer: p.peer, Err: errWithdrawn})
		}
	case kindBye:
		return p.link.goodbye()
	default:
		return fmt.Errorf("it sent a header of kind %d where that makes no sense", h.kind)
	}
	return nil
}

// ready takes an announcement.
func (p *peerMessages) handleReady(h *header) error {
	// Two messages of one number could not be told apart, and one of them would
	// wait for ever.
	if h.id <= p.lastPeerID {
		return fmt.Errorf("it has announced message %d after message %d", h.id, p.lastPeerID)
	}
	p.lastPeerID = h.id
	if x := p.posted.pop(h.tag); x != nil {
		p.match(x, h.id, h.length, p.link.in.headBytes())
		return nil
	}
	if p.numAnnounced >= maxAnnounced {
		return fmt.Errorf("it has announced %d messages that nobody waits for", p.numAnnounced)
	}
	p.numAnnounced++
	a := p.messenger.newState(nil)
	a.id, a.length, a.head = h.id, h.length, *p.link.in.headBytes()
	p.announced.push(h.tag, a)
	return nil
}
