package tcp

import (
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/internal/transport"
)

const (
	// maxPieceBytes bounds the data of one message that is sent before other messages get a turn.
	maxPieceBytes = 1 << 20
	// maxAnnounced bounds the announcements of one peer that match no posted receive.
	maxAnnounced = 1 << 20
	// copyPieceBytes bounds one copy, so that the garbage collector can stop the goroutine between
	// two.
	copyPieceBytes = 128 << 10
)

// peerMessages holds the messages between this rank and one peer, in both directions. A sender
// announces a message by kindReady with its tag, length and head. When a receive matches, the
// receiver answers kindClear with the message's id. Then the sender sends the data. messenger.mu
// guards all fields.
type peerMessages struct {
	messenger *messenger
	peer      int
	self      bool  // the peer is this rank
	listed    bool  // in messenger.active
	link      *link // nil: not connected yet, or the peer is this rank
	err       error // why the lane has failed; nil: it has not
	open      int   // messages that are not done

	posted       tags // receives without a matching announcement
	announced    tags // announcements without a matching receive; if the peer is this rank, sends
	numAnnounced int

	lastID     uint64               // id of this rank's last announcement
	lastPeerID uint64               // id of the peer's last announcement
	sends      map[uint64]*msgState // announced sends, by id
	recvs      map[uint64]*msgState // cleared receives, by id

	out        outQueue
	writing    *msgState // the send whose data is being written; nil: none
	reading    *msgState // the receive whose data is being read; nil: none
	pieceLeft  int       // bytes of the current piece still to be read
	pieceBytes int       // bytes of the current piece
	pieceSum   uint64    // checksum of the current piece; zero: none
	discard    []byte    // receives data of withdrawn messages
}

func (p *peerMessages) setup(s *messenger, peer int) {
	p.messenger, p.peer, p.self = s, peer, peer == s.m.rank
	p.posted, p.announced = make(tags), make(tags)
	p.sends, p.recvs = make(map[uint64]*msgState), make(map[uint64]*msgState)
}

// postSend announces a send, or matches it if the peer is this rank.
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

// postReceive posts a receive and matches it with an announcement.
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

// match matches receive x with an announcement. If x must be accepted first, Finish of x continues.
func (p *peerMessages) match(x *msgState, id uint64, length int, head *transport.Head) {
	x.id, x.length, x.matched = id, length, true
	x.msg.Head = *head
	if x.msg.Accept != nil || length != len(x.msg.Body) {
		x.signal()
		return
	}
	p.clearSend(x)
}

// accept calls Accept of a matched receive and clears the sender. After an error the sender is
// never cleared: its Finish returns when its waiter ends.
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

// clearSend allows the sender of a matched receive to send the data.
func (p *peerMessages) clearSend(x *msgState) {
	x.cleared = true
	if p.self {
		p.deliverSelf(x)
		return
	}
	p.recvs[x.id] = x
	p.out.push(outHeader{kind: kindClear, id: x.id})
}

// deliverSelf copies a message from this rank to itself.
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

// copyBody copies at most copyPieceBytes. The garbage collector can stop the goroutine between two
// calls.
//
//go:noinline
func copyBody(to, from []byte) { copy(to[:min(len(to), copyPieceBytes)], from) }

// finish completes a message.
func (p *peerMessages) finish(x *msgState, err error) {
	p.open--
	x.finish(err)
}

// fail ends all messages with a peer. Later messages fail in Post.
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

// abandon completes one message of a failed peer with an error.
func (p *peerMessages) abandon(x *msgState, err error) {
	if x.msg != nil && !x.done {
		x.finish(err)
	}
}

// withdraw ends a message that is not done. Its body is not accessed afterwards. A matched receive
// stays known until the peer has sent the data, which is discarded. If the peer is lost, nothing is
// left to do. messenger.mu is held.
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

// withdrawSend withdraws a send. If it was announced, its state stays in p.sends, so that the
// receiver can be notified.
func (p *peerMessages) withdrawSend(x *msgState) {
	if p.writing == x || x.moved > 0 {
		// The peer waits for the rest of the body and must learn at once that it will not come. The
		// socket may have no room for a header, so the connection is ended.
		p.link.abort()
		p.fail(&transport.LostError{Peer: p.peer, Err: errors.New("a message to it was withdrawn while it was being sent")})
		return
	}
	w := p.out.find(x)
	switch {
	case w == nil: // the peer has not cleared the send yet
	case w.kind == kindReady:
		p.out.remove(w)
		delete(p.sends, x.id)
	default:
		*w = outHeader{kind: kindWithdrawn, id: x.id}
	}
}

// handleHeader acts on a received header.
func (p *peerMessages) handleHeader() error {
	h := &p.link.in.header
	switch h.kind {
	case kindReady:
		return p.handleReady(h)
	case kindClear:
		x := p.sends[h.id]
		if x == nil {
			return fmt.Errorf("it requests message %d, which was not announced", h.id)
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
			return fmt.Errorf("it sent %d bytes of message %d, which no receive expects", h.length, h.id)
		}
		p.reading, p.pieceLeft, p.pieceBytes, p.pieceSum = x, h.length, h.length, h.sum
	case kindWithdrawn:
		x := p.recvs[h.id]
		if x == nil {
			return fmt.Errorf("it withdrew message %d, which no receive expects", h.id)
		}
		delete(p.recvs, h.id)
		if x.msg != nil {
			p.finish(x, &transport.LostError{Peer: p.peer, Err: errWithdrawn})
		}
	case kindBye:
		return p.link.goodbye()
	default:
		return fmt.Errorf("it sent a header of kind %d which is not valid here", h.kind)
	}
	return nil
}

// handleReady handles an announcement.
func (p *peerMessages) handleReady(h *header) error {
	// Two messages with one id would be indistinguishable, and one of them would wait forever.
	if h.id <= p.lastPeerID {
		return fmt.Errorf("it has announced message %d after message %d", h.id, p.lastPeerID)
	}
	p.lastPeerID = h.id
	if x := p.posted.pop(h.tag); x != nil {
		p.match(x, h.id, h.length, p.link.in.headBytes())
		return nil
	}
	if p.numAnnounced >= maxAnnounced {
		return fmt.Errorf("it has announced %d messages without a matching receive", p.numAnnounced)
	}
	p.numAnnounced++
	a := p.messenger.newState(nil)
	a.id, a.length, a.head = h.id, h.length, *p.link.in.headBytes()
	p.announced.push(h.tag, a)
	return nil
}
