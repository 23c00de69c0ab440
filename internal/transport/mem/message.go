package mem

import (
	"errors"
	"slices"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// A letter is one side of a message.
type letter struct {
	m    *transport.Message
	pair *letter // a receive's send, once they have met
	over bool    // it was delivered
	gone bool    // it was taken back
}

// Post puts a message on its line, or hands it to the receive that waits.
func (m *Mesh) Post(msg *transport.Message) {
	x := &letter{m: msg}
	msg.State = x
	m.n.mu.Lock()
	l := m.lineOf(msg)
	mine, others := &l.recvs, &l.sends
	if msg.Send {
		mine, others = others, mine
	}
	i := slices.IndexFunc(*others, func(o *letter) bool { return o.m.Tag == msg.Tag })
	if i < 0 {
		*mine = append(*mine, x)
	} else {
		o := (*others)[i]
		*others = slices.Delete(*others, i, i+1)
		recv, send := x, o
		if msg.Send {
			recv, send = o, x
		}
		recv.pair = send
	}
	m.n.mu.Unlock()
	if i >= 0 {
		m.n.ranks[msg.Peer].tell()
	}
}

// lineOf is the line that a message of this rank's goes through; n.mu is held.
func (m *Mesh) lineOf(msg *transport.Message) *line {
	if msg.Send {
		return m.n.line(m.rank, msg.Peer)
	}
	return m.n.line(msg.Peer, m.rank)
}

// Finish waits until a message is delivered. The receiver copies it.
func (m *Mesh) Finish(w *wait.Waiter, msg *transport.Message) error {
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
			m.withdrawLetter(x)
			return err
		}
	}
}

var errNotPosted = errors.New("mem: the message was not posted")

// deliver does what can be done without waiting.
func (m *Mesh) deliver(x *letter) (bool, error) {
	m.n.mu.Lock()
	defer m.n.mu.Unlock()
	if x.over {
		return true, nil
	}
	msg := x.m
	if msg.Send || x.pair == nil || x.pair.gone {
		return false, m.lost(msg.Peer)
	}
	sent := x.pair.m
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
	x.over, x.pair.over = true, true
	m.n.ranks[msg.Peer].tell()
	return true, nil
}

// withdrawLetter takes a failed message back: nobody will find it or read it.
func (m *Mesh) withdrawLetter(x *letter) {
	m.n.mu.Lock()
	defer m.n.mu.Unlock()
	l := m.lineOf(x.m)
	is := func(o *letter) bool { return o == x }
	l.sends = slices.DeleteFunc(l.sends, is)
	l.recvs = slices.DeleteFunc(l.recvs, is)
	x.gone = true
}
