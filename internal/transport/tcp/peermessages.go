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
)

// peerMessages holds the messages between this rank and one peer, in both directions. A sender
// announces a message by kindReady with its tag, type and length. When the handler of the receiver has
// accepted it, the receiver answers kindClear with the message's id. Then the sender sends the data.
// messenger.mu guards all fields.
type peerMessages struct {
	messenger *messenger
	peer      int
	self      bool  // the peer is this rank
	listed    bool  // in messenger.active
	link      *link // nil: not connected yet, or the peer is this rank
	err       error // why the lane has failed; nil: it has not
	open      int   // messages that are not done; without receives from any rank that wait

	numAnnounced int // announcements of the peer in the inbox

	lastID     uint64               // id of this rank's last announcement
	lastPeerID uint64               // id of the peer's last announcement
	sends      map[uint64]*msgState // announced sends, by id
	recvs      map[uint64]*msgState // matched receives, by id

	out        outQueue
	notes      []transport.Note // the queued notes
	writing    *msgState        // the send whose data is being written; nil: none
	reading    *msgState        // the receive whose data is being read; nil: none
	pieceLeft  int              // bytes of the current piece still to be read
	pieceBytes int              // bytes of the current piece
	pieceSum   uint64           // checksum of the current piece; zero: none
	discard    []byte           // receives data of withdrawn messages
}

func (p *peerMessages) setup(s *messenger, peer int) {
	p.messenger, p.peer, p.self = s, peer, peer == s.m.rank
	p.sends, p.recvs = make(map[uint64]*msgState), make(map[uint64]*msgState)
}

// postSend announces a send.
func (p *peerMessages) postSend(x *msgState) {
	p.lastID++
	x.id = p.lastID
	p.sends[x.id] = x
	if p.self {
		x.kind, x.length = x.msg.Kind, len(x.msg.Body)
		p.messenger.announce(x, x.msg.Tag)
		return
	}
	p.out.push(outHeader{kindReady, x.id, x})
}

// fail ends all messages with a peer. Later messages fail in Post.
func (p *peerMessages) fail(err error) {
	if p.err != nil {
		return
	}
	s := p.messenger
	p.err = err
	if !p.self {
		s.lost++
		s.lostErr = err
	}
	s.failPeer(p)
	for _, x := range p.sends {
		p.abandon(x)
	}
	clear(p.sends)
	p.open, p.numAnnounced = 0, 0
	p.out, p.notes = outQueue{}, nil
	p.writing, p.reading = nil, nil
	s.failMatched(p)
}

// abandon completes one message of a failed peer.
func (p *peerMessages) abandon(x *msgState) {
	if x.msg != nil && !x.done {
		x.finish(p.err)
	}
}

// withdrawSend withdraws a send. If it was announced, its state stays in p.sends, so that the
// receiver can be notified.
func (p *peerMessages) withdrawSend(x *msgState) {
	if p.self {
		p.withdrawSelf(x)
		return
	}
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

// withdrawSelf withdraws a send to this rank, which no receive has taken.
func (p *peerMessages) withdrawSelf(x *msgState) {
	delete(p.sends, x.id)
	if p.messenger.inbox.Withdraw(&x.announcement) {
		p.numAnnounced--
	} else {
		p.messenger.retract(p.recvs[x.id])
	}
	x.done = true
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
		x.msg.Matched.Store(true)
		p.out.push(outHeader{kindData, h.id, x})
	case kindData:
		x := p.recvs[h.id]
		if x == nil || !x.cleared || h.length > x.length-x.moved {
			return fmt.Errorf("it sent %d bytes of message %d, which no receive expects", h.length, h.id)
		}
		p.reading, p.pieceLeft, p.pieceBytes, p.pieceSum = x, h.length, h.length, h.sum
	case kindWithdrawn:
		x := p.recvs[h.id]
		if x == nil || !x.cleared {
			return fmt.Errorf("it withdrew message %d, which no receive expects", h.id)
		}
		p.messenger.retract(x)
	case kindNote:
		p.messenger.handler.Note(p.peer, (*transport.Note)(p.link.in.headBytes()[:transport.NoteBytes]))
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
	s := p.messenger
	a := s.newState(nil)
	a.peer, a.id, a.kind, a.length = p, h.id, h.elem, h.length
	s.announce(a, h.tag)
	if p.numAnnounced > maxAnnounced {
		return fmt.Errorf("it has announced %d messages without a matching receive", p.numAnnounced)
	}
	return nil
}
