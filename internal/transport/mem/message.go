package mem

import (
	"errors"
	"slices"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// msgState is one side of a message. network.mu guards it.
type msgState struct {
	m         *transport.Message
	send      *msgState // of a receive: the matching send
	delivered bool      // complete
	withdrawn bool      // its Finish has failed
}

// Post adds a message to its route, or matches it with a waiting one.
func (m *Mesh) Post(msg *transport.Message) {
	x := &msgState{m: msg}
	msg.State = x
	m.n.mu.Lock()
	l := m.routeOf(msg)
	mine, others := &l.recvs, &l.sends
	if msg.Send {
		mine, others = others, mine
	}
	i := slices.IndexFunc(*others, func(o *msgState) bool { return o.m.Tag == msg.Tag })
	if i < 0 {
		*mine = append(*mine, x)
	} else {
		o := (*others)[i]
		*others = slices.Delete(*others, i, i+1)
		recv, send := x, o
		if msg.Send {
			recv, send = o, x
		}
		recv.send = send
	}
	m.n.mu.Unlock()
	if i >= 0 {
		m.n.ranks[msg.Peer].wake()
	}
}

// routeOf returns the route of a message of this rank. The caller holds n.mu.
func (m *Mesh) routeOf(msg *transport.Message) *route {
	if msg.Send {
		return m.n.route(m.rank, msg.Peer)
	}
	return m.n.route(msg.Peer, m.rank)
}

// Finish waits until a message is delivered. The receiver copies the body.
func (m *Mesh) Finish(w *wait.Waiter, msg *transport.Message) error {
	x, ok := msg.State.(*msgState)
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
			m.withdrawMessage(x)
			return err
		}
	}
}

var errNotPosted = errors.New("mem: the message was not posted")

// deliver does what is possible without waiting. It reports whether the message is delivered.
func (m *Mesh) deliver(x *msgState) (bool, error) {
	m.n.mu.Lock()
	defer m.n.mu.Unlock()
	if x.delivered {
		return true, nil
	}
	msg := x.m
	if msg.Send || x.send == nil || x.send.withdrawn {
		return false, m.lost(msg.Peer)
	}
	sent := x.send.m
	msg.Head = sent.Head
	if len(sent.Body) != len(msg.Body) {
		return false, &transport.LengthError{Peer: msg.Peer, Want: len(msg.Body), Sent: len(sent.Body)}
	}
	if msg.Accept != nil {
		if err := msg.Accept(&msg.Head); err != nil {
			return false, err
		}
	}
	copy(msg.Body, sent.Body)
	x.delivered, x.send.delivered = true, true
	m.n.ranks[msg.Peer].wake()
	return true, nil
}

// withdrawMessage removes a failed message, so that no peer matches it or reads its body.
func (m *Mesh) withdrawMessage(x *msgState) {
	m.n.mu.Lock()
	defer m.n.mu.Unlock()
	l := m.routeOf(x.m)
	is := func(o *msgState) bool { return o == x }
	l.sends = slices.DeleteFunc(l.sends, is)
	l.recvs = slices.DeleteFunc(l.recvs, is)
	x.withdrawn = true
}
