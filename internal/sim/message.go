package sim

import (
	"slices"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// A letter is one side of a message. A send's body is a copy.
type letter struct {
	m    *transport.Message
	tag  int
	head transport.Head
	body []byte
	pair *letter // a receive's send, once they have met
	over bool    // it was delivered, as far as this side knows
}

// Post puts a send on its way, or waits for one. It does not block, and may be
// called with locks held: a process that dies of it ends later.
func (m *mesh) Post(msg *transport.Message) {
	x := &letter{m: msg, tag: msg.Tag}
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
	if !m.p.leaving(o.p) {
		return
	}
	m.g.w.s.log.note(m.g.w.s.now, "message", m.p.rank, o.p.rank, len(x.body))
	m.g.w.net.send(&c.mail, transport.HeadBytes+len(x.body), func() {
		if !o.arrived(m) {
			return
		}
		theirs := o.peers[m.rank]
		theirs.sends = append(theirs.sends, x)
		theirs.match()
		o.tell()
	})
}

// match lets sends that have arrived meet receives, in order for each tag.
func (c *peer) match() {
	for i := 0; i < len(c.recvs); {
		r := c.recvs[i]
		k := slices.IndexFunc(c.sends, func(s *letter) bool { return s.tag == r.tag })
		if k < 0 {
			i++
			continue
		}
		r.pair = c.sends[k]
		c.sends = slices.Delete(c.sends, k, k+1)
		c.recvs = slices.Delete(c.recvs, i, i+1)
	}
}

// Finish waits until a message is delivered.
func (m *mesh) Finish(w *wait.Waiter, msg *transport.Message) error {
	m.p.checkpoint()
	x, ok := msg.State.(*letter)
	if !ok {
		return errNotPosted
	}
	for {
		seen := m.news.Load()
		over, err := m.deliver(x)
		if err == nil && over {
			return nil
		}
		if err == nil {
			_, err = w.AtLeast(&m.news, seen+1, nil)
		}
		if err != nil {
			c := m.peer(msg.Peer)
			c.recvs = slices.DeleteFunc(c.recvs, func(o *letter) bool { return o == x })
			return err
		}
	}
}

// deliver does what can be done without waiting.
func (m *mesh) deliver(x *letter) (bool, error) {
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
	m.g.w.net.send(&c.mail, 0, func() {
		if o.arrived(m) {
			sent.over = true
			o.tell()
		}
	})
	return true, nil
}
