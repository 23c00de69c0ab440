package sim

import (
	"slices"

	"github.com/tutti-go/tutti/internal/match"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// A pendingMessage is one side of a message. A send's body is a copy, which travels with the
// announcement.
type pendingMessage struct {
	m        *transport.Message
	receive  match.Receive      // of a receive
	announce match.Announcement // of a send, in the receiver's inbox
	kind     uint8              // of a send
	body     []byte             // of a send
	pair     *pendingMessage    // of a matched receive: its send
	over     bool               // delivered, as far as this side knows
}

// Handle sets the handler of the message lane.
func (m *mesh) Handle(h transport.Handler) { m.handler = h }

// Post announces messages. It does not block, and may be called with locks held: a process that a
// fault kills meanwhile ends later.
func (m *mesh) Post(msg *transport.Message) {
	for msg != nil {
		next := msg.Next
		msg.Next = nil
		m.post(msg)
		msg = next
	}
}

// post sends a message, or waits for one.
func (m *mesh) post(msg *transport.Message) {
	x := &pendingMessage{m: msg}
	msg.State, msg.Untaken = x, false
	msg.Matched.Store(false)
	switch {
	case m.p.dead:
	case msg.Send:
		m.announce(x)
	default:
		if msg.Peer == transport.AnyRank {
			m.connectAll()
		} else {
			m.peer(msg.Peer)
		}
		x.receive = match.Receive{From: msg.Peer, Tag: msg.Tag, Owner: x}
		if a := m.inbox.Post(&x.receive); a != nil {
			pair(&x.receive, a)
		}
	}
}

// connectAll makes the connections to all ranks, so that their end is noticed.
func (m *mesh) connectAll() {
	for r := range m.g.meshes {
		m.peer(r)
	}
}

// announce sends a message to its receiver.
func (m *mesh) announce(x *pendingMessage) {
	msg := x.m
	c, o := m.peer(msg.Peer), m.g.meshes[msg.Peer]
	x.kind, x.body = msg.Kind, slices.Clone(msg.Body)
	x.announce = match.Announcement{From: m.rank, Tag: msg.Tag, Owner: x}
	if !m.p.beforeSend(o.p) {
		return
	}
	m.g.w.s.log.note(m.g.w.s.now, "message", m.p.rank, o.p.rank, len(x.body))
	m.g.w.net.send(&c.messages, transport.HeadBytes+len(x.body), func() {
		if !o.arrived(m) {
			return
		}
		if r := o.inbox.Announce(&x.announce); r != nil {
			pair(r, &x.announce)
		}
		o.notify()
	})
}

// pair matches a receive with a message that has arrived.
func pair(r *match.Receive, a *match.Announcement) {
	x, sent := r.Owner.(*pendingMessage), a.Owner.(*pendingMessage)
	x.pair = sent
	x.m.From, x.m.Kind, x.m.Len = a.From, sent.kind, len(sent.body)
	x.m.Matched.Store(true)
}

// Finish waits until a message is delivered. It returns an error if the peer is lost, if w's context
// or time limit ends, or if the handler refuses the message. A receive is then withdrawn, and its
// message waits for another one.
func (m *mesh) Finish(w *wait.Waiter, msg *transport.Message) error {
	m.p.checkpoint()
	x, ok := msg.State.(*pendingMessage)
	if !ok {
		return errNotPosted
	}
	for {
		seen := m.events.Load()
		over, err := m.deliver(w, x)
		if err == nil && over {
			return nil
		}
		if err == nil {
			_, err = w.AtLeast(&m.events, seen+1, nil)
		}
		if err != nil {
			m.withdraw(x)
			return err
		}
	}
}

// deliver does what is possible without waiting, and reports whether this side is
// done. A receive is done when the body of its send is copied. A send is done when
// the acknowledgement of the receiver has arrived.
func (m *mesh) deliver(w *wait.Waiter, x *pendingMessage) (bool, error) {
	msg := x.m
	switch {
	case x.over:
		return true, nil
	case x.pair == nil && msg.Peer == transport.AnyRank:
		return false, m.lostAll()
	case x.pair == nil:
		return false, m.lost(msg.Peer, m.peer(msg.Peer))
	}
	if _, err := w.Check(); err != nil {
		return false, err
	}
	if err := m.handler.Accept(msg); err != nil {
		return false, err
	}
	sent := x.pair
	copy(msg.Body, sent.body)
	x.over = true
	o := m.g.meshes[msg.From]
	m.g.w.net.send(&m.peer(msg.From).messages, 0, func() {
		if o.arrived(m) {
			sent.over = true
			if sent.m.State == sent {
				sent.m.Matched.Store(true)
			}
			o.notify()
		}
	})
	return true, nil
}

// lostAll returns why no other rank can send to this one, or nil.
func (m *mesh) lostAll() (err error) {
	if m.closed {
		return errClosed
	}
	for r := range m.g.meshes {
		if r == m.rank {
			continue
		}
		if err = m.lost(r, m.peer(r)); err == nil {
			return nil
		}
	}
	return err
}

// withdraw ends a receive that has failed. A message that it was matched with waits for another
// receive. A send is not withdrawn: its data has left.
func (m *mesh) withdraw(x *pendingMessage) {
	if x.m.Send {
		return
	}
	x.m.Untaken = true
	x.m.Matched.Store(false)
	m.inbox.Cancel(&x.receive)
	x.m.OtherTag = m.inbox.OtherTag(x.receive.From)
	if sent := x.pair; sent != nil {
		x.pair = nil
		if r := m.inbox.Return(&sent.announce); r != nil {
			pair(r, &sent.announce)
			m.notify()
		}
	}
}

// Notify sends a note to the handler of a peer.
func (m *mesh) Notify(peer int, n *transport.Note) {
	o := m.g.meshes[peer]
	if m.p.dead || o == m {
		return
	}
	note := *n
	m.g.w.net.send(&m.peer(peer).messages, transport.NoteBytes, func() {
		if o.arrived(m) && o.handler != nil {
			o.handler.Note(m.rank, &note)
		}
	})
}
