package control

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/acceptloop"
)

const (
	// helloTime is how long a connection may take to prove itself, and
	// maxPending how many may do so at once: strangers cost no more.
	helloTime  = 10 * time.Second
	maxPending = 256
)

// strangers are the connections that have not proved themselves, in the order
// in which they came. When there are too many, the one that has waited longest
// makes room: a rank needs milliseconds, so that idle connections cannot keep
// one out.
type pendingConns struct {
	mu     sync.Mutex
	list   []net.Conn
	closed bool
}

// add takes one in, and reports whether there still is a door.
func (s *pendingConns) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if len(s.list) >= maxPending {
		s.list[0].Close()
		s.list = slices.Delete(s.list, 0, 1)
	}
	s.list = append(s.list, c)
	return true
}

// remove takes one out that has proved itself or was refused. It reports false
// for one that was sent away before.
func (s *pendingConns) remove(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.list, c)
	if i < 0 || s.closed {
		return false
	}
	s.list = slices.Delete(s.list, i, i+1)
	return true
}

// close sends all away, now and later.
func (s *pendingConns) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.list {
		c.Close()
	}
}

// errSentAway is what became of a connection that made room, or that the end of
// the job found.
var errEvicted = errors.New("it had not proved itself when its place was needed, or the job ended")

// accept takes connections until the listener is closed.
func (h *joinServer) accept() {
	warn := func(err error) { h.member.cfg.Logger.Warn("tutti: cannot accept control connections", "reason", err) }
	acceptloop.Run(h.listener, warn, func(c net.Conn) {
		if !h.pendingConns.add(c) { // the listener has been closed, too
			c.Close()
			return
		}
		h.wg.Go(func() {
			defer h.pendingConns.remove(c)
			h.admit(newConn(c))
		})
	})
}
