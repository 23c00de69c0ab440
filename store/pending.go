package store

import (
	"container/list"
	"errors"
	"net"
	"time"
)

const (
	// proofTime bounds the time from accept to the end of the handshake. All listeners of a
	// job have this limit; docs/design/security.md lists them.
	proofTime = 10 * time.Second
	// unprovenBytes is the most that the server reads from a connection before the
	// proof. It bounds the memory of a TLS handshake, which otherwise holds
	// messages of up to 64 KiB. A correct client sends about 4 KiB.
	unprovenBytes = 16 << 10
	// evictAge is the age from which a pending connection may be closed to make room.
	// Until then new connections stay in the kernel's accept queue: many clients that
	// connect at once need this time for their handshakes.
	evictAge = 250 * time.Millisecond
	// maxDismissals is how many refused connections receive a reason at the same
	// time. Further ones are closed without an answer.
	maxDismissals = 64
)

// A pending is the set of sessions that have not authenticated yet, the oldest first.
// Server.mu guards it.
type pending struct {
	sessions *list.List     // of *session
	perHost  map[string]int // the number of sessions by the client's host; never zero
	room     chan struct{}  // capacity 1; receives when a session has left
}

func newPending() pending {
	return pending{sessions: list.New(), perHost: make(map[string]int), room: make(chan struct{}, 1)}
}

// hostOf returns the IP address of the connection's peer, or "".
func hostOf(c net.Conn) string {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.IP.String()
	}
	return ""
}

func (p *pending) add(c *session) {
	c.element = p.sessions.PushBack(c)
	p.perHost[c.host]++
}

// remove removes a session from the set, if it is in it.
func (p *pending) remove(c *session) {
	if c.element == nil {
		return
	}
	p.sessions.Remove(c.element)
	c.element = nil
	if p.perHost[c.host]--; p.perHost[c.host] == 0 {
		delete(p.perHost, c.host)
	}
	select {
	case p.room <- struct{}{}:
	default:
	}
}

// oldest returns the oldest session of the host that has the most sessions, or nil.
// A host that floods the server therefore loses its own connections.
func (p *pending) oldest() *session {
	most := 0
	for _, n := range p.perHost {
		most = max(most, n)
	}
	for e := p.sessions.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*session); p.perHost[c.host] == most {
			return c
		}
	}
	return nil
}

var errTooMuchUnproven = errors.New("the client sent too much before it authenticated")

// An authGate is a session's connection. Until open is set, it passes at most
// unprovenBytes to the reader. Only the session's reading goroutine uses it.
type authGate struct {
	net.Conn
	left int // bytes that may be read before the proof
	open bool
}

func (g *authGate) Read(b []byte) (int, error) {
	if g.open {
		return g.Conn.Read(b)
	}
	if g.left == 0 {
		return 0, errTooMuchUnproven
	}
	n, err := g.Conn.Read(b[:min(len(b), g.left)])
	g.left -= n
	return n, err
}

// CloseWrite lets dismiss close the sending side first.
func (g *authGate) CloseWrite() error {
	if t, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return t.CloseWrite()
	}
	return errors.ErrUnsupported
}

// resetConn closes a connection with a TCP reset. The client then knows that it was
// evicted and may dial again; a normal close would mean that the server has ended.
func resetConn(c net.Conn) {
	if t, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
