package tcp

import (
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/internal/transport"
)

const (
	// piece is how much of a message is sent before others get their turn.
	piece = 1 << 20
	// maxEarly bounds the announcements of one peer that no receive was
	// posted for.
	maxEarly = 1 << 20
	// copyPiece is how much is copied at once.
	copyPiece = 128 << 10
)

// A pair is the messages between this rank and one peer, both ways. A send is
// announced with its tag, length and head; when a receive meets the
// announcement it clears the send by its id; then the data comes. The
// messenger's lock guards it.
type pair struct {
	s      *messenger
	peer   int
	own    bool  // the peer is this rank
	listed bool  // among the messenger's active pairs
	link   *link // nil: not yet connected, or this rank itself
	err    error // why nothing moves any more
	open   int   // messages that are not done

	posted tags // receives that wait for an announcement
	early  tags // announcements that wait for a receive; of an own pair, sends
	nEarly int

	lastID  uint64           // of this rank's announcements
	heardID uint64           // of the peer's
	sends   map[uint64]*note // announced
	recvs   map[uint64]*note // cleared

	out     words
	writing *note  // whose data is being written; nil: none
	reading *note  // whose data is being read
	left    int    // how much of that piece is still to come
	size    int    // of all of that piece
	sum     uint64 // its checksum; zero: it has none
	sink    []byte // where data goes that nobody wants any more
}

func (p *pair) init(s *messenger, peer int) {
	p.s, p.peer, p.own = s, peer, peer == s.m.rank
	p.posted, p.early = make(tags), make(tags)
	p.sends, p.recvs = make(map[uint64]*note), make(map[uint64]*note)
}

// announce starts a send.
func (p *pair) announce(x *note) {
	if p.own {
		if r := p.posted.pop(x.msg.Tag); r != nil {
			r.partner = x
			p.match(r, 0, len(x.msg.Body), &x.msg.Head)
			return
		}
		p.early.push(x.msg.Tag, x)
		return
	}
	p.lastID++
	x.id = p.lastID
	p.sends[x.id] = x
	p.out.push(word{kindReady, x.id, x})
}

// expect starts a receive.
func (p *pair) expect(x *note) {
	a := p.early.pop(x.msg.Tag)
	switch {
	case a == nil:
		p.posted.push(x.msg.Tag, x)
	case p.own:
		x.partner = a
		p.match(x, 0, len(a.msg.Body), &a.msg.Head)
	default:
		p.nEarly--
		p.match(x, a.id, a.length, &a.head)
		a.done = true
		p.s.keep(a)
	}
}

// match lets a receive meet its announcement. If the receive has a say in it,
// its own Finish goes on.
func (p *pair) match(x *note, id uint64, length int, head *transport.Head) {
	x.id, x.length, x.matched = id, length, true
	x.msg.Head = *head
	if x.msg.Accept != nil || length != len(x.msg.Body) {
		x.nudge()
		return
	}
	p.clear(x)
}

// accept asks a receive that is matched, and clears its sender. A sender that
// is not cleared waits until it is told to stop.
func (p *pair) accept(x *note) error {
	m := x.msg
	if x.length != len(m.Body) {
		return &transport.LengthError{Peer: p.peer, Want: len(m.Body), Sent: x.length}
	}
	if m.Accept != nil {
		if err := m.Accept(&m.Head); err != nil {
			return err
		}
	}
	p.clear(x)
	return nil
}

func (p *pair) clear(x *note) {
	x.cleared = true
	if p.own {
		p.deliver(x)
		return
	}
	p.recvs[x.id] = x
	p.out.push(word{kind: kindClear, id: x.id})
}

// deliver copies a message from this rank to itself.
func (p *pair) deliver(x *note) {
	from := x.partner
	x.partner = nil
	if from.msg == nil {
		p.close(x, &transport.LostError{Peer: p.peer, Err: errGone})
		return
	}
	for at := 0; at < len(x.msg.Body); at += copyPiece {
		copyBody(x.msg.Body[at:], from.msg.Body[at:])
	}
	p.close(x, nil)
	p.close(from, nil)
}

// copyBody copies a piece of a body. The collector can stop it between two.
//
//go:noinline
func copyBody(to, from []byte) { copy(to[:min(len(to), copyPiece)], from) }

// close counts a message out.
func (p *pair) close(x *note, err error) {
	p.open--
	x.finish(err)
}

// fail ends all messages with a peer, now and later.
func (p *pair) fail(err error) {
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
	for _, t := range []tags{p.posted, p.early} {
		for _, q := range t {
			for x := q.first; x != nil; x = x.next {
				p.abandon(x, err)
			}
		}
	}
	p.open = 0
	p.out = words{}
	p.writing, p.reading = nil, nil
	clear(p.sends)
	clear(p.recvs)
	clear(p.posted)
	clear(p.early)
}

// abandon ends one message of a pair that has failed.
func (p *pair) abandon(x *note, err error) {
	if x.msg != nil && !x.done {
		x.finish(err)
	}
}

// withdraw gives up a message that is not done. Its body is not touched
// afterwards.
func (p *pair) withdraw(x *note) {
	m := x.msg
	x.msg = nil
	if p.err != nil {
		return
	}
	p.open--
	switch {
	case m.Send && p.own:
		p.early.remove(m.Tag, x)
	case m.Send:
		p.unsend(x)
	case !x.matched:
		p.posted.remove(m.Tag, x)
	}
}

// unsend withdraws a send. One that was announced stays known, so that its
// receiver can be told.
func (p *pair) unsend(x *note) {
	if p.writing == x || x.at > 0 {
		// The peer waits for the rest of the body, and must learn at once that
		// it will not come; there may be no room to say so.
		p.link.cut()
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
		*w = word{kind: kindGone, id: x.id}
	}
}

// heard acts on a header.
func (p *pair) heard() error {
	h := &p.link.in.header
	switch h.kind {
	case kindReady:
		return p.ready(h)
	case kindClear:
		x := p.sends[h.id]
		if x == nil {
			return fmt.Errorf("it wants message %d, which was not announced", h.id)
		}
		delete(p.sends, h.id)
		if x.msg == nil {
			p.out.push(word{kind: kindGone, id: h.id})
			return nil
		}
		p.out.push(word{kindData, h.id, x})
	case kindData:
		x := p.recvs[h.id]
		if x == nil || h.length > x.length-x.at {
			return fmt.Errorf("it sent %d bytes of message %d, which nobody waits for", h.length, h.id)
		}
		p.reading, p.left, p.size, p.sum = x, h.length, h.length, h.sum
	case kindGone:
		x := p.recvs[h.id]
		if x == nil {
			return fmt.Errorf("it gave up message %d, which nobody waits for", h.id)
		}
		delete(p.recvs, h.id)
		if x.msg != nil {
			p.close(x, &transport.LostError{Peer: p.peer, Err: errGone})
		}
	case kindBye:
		return p.link.goodbye()
	default:
		return fmt.Errorf("it sent a header of kind %d where that makes no sense", h.kind)
	}
	return nil
}

// ready takes an announcement.
func (p *pair) ready(h *header) error {
	// Two messages of one number could not be told apart, and one of them would
	// wait for ever.
	if h.id <= p.heardID {
		return fmt.Errorf("it has announced message %d after message %d", h.id, p.heardID)
	}
	p.heardID = h.id
	if x := p.posted.pop(h.tag); x != nil {
		p.match(x, h.id, h.length, p.link.in.headOf())
		return nil
	}
	if p.nEarly >= maxEarly {
		return fmt.Errorf("it has announced %d messages that nobody waits for", p.nEarly)
	}
	p.nEarly++
	a := p.s.note(nil)
	a.id, a.length, a.head = h.id, h.length, *p.link.in.headOf()
	p.early.push(h.tag, a)
	return nil
}
