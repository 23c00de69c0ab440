package store

import (
	"container/list"
	"errors"
	"net"
	"time"
)

const (
	// proofTime is the most that a connection may take to prove who it is.
	proofTime = 10 * time.Second
	// unprovenBytes is the most that the server reads from a connection before the
	// proof. It bounds the memory of a TLS handshake, which otherwise holds
	// messages of up to 64 KiB. An honest client sends about 4 KiB.
	unprovenBytes = 16 << 10
	// evictAge is how old a connection is before it is closed to make room for
	// another one. Until then new connections wait in the kernel's queue: clients
	// that all come at once need time for their handshakes.
	evictAge = 250 * time.Millisecond
	// maxDismissals is how many refused connections are told why at the same
	// time. Others are closed without a word.
	maxDismissals = 64
)

// pending are the sessions that have not proved who they are, the oldest first.
// The server's lock guards it.
type pending struct {
	all  *list.List     // of *session
	from map[string]int // how many there are by the client's host; none is zero
	room chan struct{}  // holds something when a session may have left
}

func newPending() pending {
	return pending{all: list.New(), from: make(map[string]int), room: make(chan struct{}, 1)}
}

// hostOf is the host of a connection's other side.
func hostOf(c net.Conn) string {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.IP.String()
	}
	return ""
}

func (p *pending) add(c *session) {
	c.place = p.all.PushBack(c)
	p.from[c.host]++
}

// remove forgets a session, if it is there.
func (p *pending) remove(c *session) {
	if c.place == nil {
		return
	}
	p.all.Remove(c.place)
	c.place = nil
	if p.from[c.host]--; p.from[c.host] == 0 {
		delete(p.from, c.host)
	}
	select {
	case p.room <- struct{}{}:
	default:
	}
}

// oldest returns the oldest session of the host that has most of them: a host
// that floods the server makes room itself. It is nil if there is none.
func (p *pending) oldest() *session {
	most := 0
	for _, n := range p.from {
		most = max(most, n)
	}
	for e := p.all.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*session); p.from[c.host] == most {
			return c
		}
	}
	return nil
}

var errUnproven = errors.New("it sent too much before it had proved who it is")

// A gate is a session's connection. Until it is opened, it lets only
// unprovenBytes in. Only the session's goroutine reads from it.
type gate struct {
	net.Conn
	left int // bytes that may be read
	open bool
}

func (g *gate) Read(b []byte) (int, error) {
	if g.open {
		return g.Conn.Read(b)
	}
	if g.left == 0 {
		return 0, errUnproven
	}
	n, err := g.Conn.Read(b[:min(len(b), g.left)])
	g.left -= n
	return n, err
}

// CloseWrite implements what dismiss needs.
func (g *gate) CloseWrite() error {
	if t, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return t.CloseWrite()
	}
	return errors.ErrUnsupported
}

// reset closes a connection so that the client is told that it was cut off, and
// not that the server has ended: it may come again.
func reset(c net.Conn) {
	if t, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
