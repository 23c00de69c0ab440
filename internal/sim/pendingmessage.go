package sim

import (
	"slices"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// A pendingMessage is one side of a message. A send's body is a copy.
type pendingMessage struct {
	m    *transport.Message
	tag  int
	head transport.Head
	body []byte
	pair *pendingMessage // a receive's send, once they are matched
	over bool            // delivered, as far as this side knows
}

// Post sends a message, or waits for one. It does not block, and may be called with
// locks held: a process that a fault kills meanwhile ends later.
func (m *mesh) Post(msg *transport.Message) {
	x := &pendingMessage{m: msg, tag: msg.Tag}
	msg.State = x
	if m.p.dead {
		return
	}
	c := m.peer(msg.Peer)
	if !msg.Send {
		c.recvs = append(c.recvs, x)
		c.match()
		return
	}
	o := m.g.meshes[msg.Peer]
	x.head, x.body = msg.Head, slices.Clone(msg.Body)
	if !m.p.beforeSend(o.p) {
		return
	}
	m.g.w.s.log.note(m.g.w.s.now, "message", m.p.rank, o.p.rank, len(x.body))
	m.g.w.net.send(&c.messages, transport.HeadBytes+len(x.body), func() {
		if !o.arrived(m) {
			return
		}
		theirs := o.peers[m.rank]
		theirs.sends = append(theirs.sends, x)
		theirs.match()
		o.notify()
	})
}

// match matches sends that have arrived with receives, in order for each tag.
func (c *peer) match() {
	for i := 0; i < len(c.recvs); {
		r := c.recvs[i]
		k := slices.IndexFunc(c.sends, func(s *pendingMessage) bool { return s.tag == r.tag })
		if k < 0 {
			i++
			continue
		}
		r.pair = c.sends[k]
		c.sends = slices.Delete(c.sends, k, k+1)
		c.recvs = slices.Delete(c.recvs, i, i+1)
	}
}

// Finish waits until a message is delivered. It returns an error if the peer is
// lost, if w's context or time limit ends, or if the receiver refuses the message.
// A receive that has no send yet is then withdrawn.
func (m *mesh) Finish(w *wait.Waiter, msg *transport.Message) error {
	m.p.checkpoint()
	x, ok := msg.State.(*pendingMessage)
	if !ok {
		return errNotPosted
	}
	for {
		seen := m.events.Load()
		over, err := m.deliver(x)
		if err == nil && over {
			return nil
		}
		if err == nil {
			_, err = w.AtLeast(&m.events, seen+1, nil)
		}
		if err != nil {
			c := m.peer(msg.Peer)
			c.recvs = slices.DeleteFunc(c.recvs, func(o *pendingMessage) bool { return o == x })
			return err
		}
	}
}

// deliver does what is possible without waiting, and reports whether this side is
// done. A receive is done when the body of its send is copied. A send is done when
// the acknowledgement of the receiver has arrived.
func (m *mesh) deliver(x *pendingMessage) (bool, error) {
	if x.over {
		return true, nil
	}
	msg := x.m
	c := m.peer(msg.Peer)
	if msg.Send || x.pair == nil {
		return false, m.lost(msg.Peer, c)
	}
	sent := x.pair
	msg.Head = sent.head
	if len(sent.body) != len(msg.Body) {
		return false, &transport.LengthError{Peer: msg.Peer, Want: len(msg.Body), Sent: len(sent.body)}
	}
	if msg.Accept != nil {
		if err := msg.Accept(&msg.Head); err != nil {
			return false, err
		}
	}
	copy(msg.Body, sent.body)
	x.over = true
	o := m.g.meshes[msg.Peer]
	m.g.w.net.send(&c.messages, 0, func() {
		if o.arrived(m) {
			sent.over = true
			o.notify()
		}
	})
	return true, nil
}
