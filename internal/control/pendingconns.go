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
	// helloTime is how long a connection may take to send its hello. maxPending is how many
	// connections may be in that state, which bounds the memory and descriptors that
	// unauthenticated peers use. All listeners of a job have these limits; docs/design/security.md
	// lists them.
	helloTime  = 10 * time.Second
	maxPending = 256
)

// pendingConns holds the connections that have not sent a valid hello, oldest first. If there are
// too many, the oldest is closed: a rank needs milliseconds, so idle connections cannot keep a rank
// out. It is safe for concurrent use.
type pendingConns struct {
	mu     sync.Mutex
	list   []net.Conn // guarded by mu
	closed bool       // guarded by mu
}

// add adds a connection. It reports false if pendingConns is closed.
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

// remove removes a connection. It reports false if the connection was evicted or pendingConns is
// closed.
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

// close closes all connections. Later calls of add report false.
func (s *pendingConns) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.list {
		c.Close()
	}
}

// errEvicted is the reason for a connection that was closed by add or close.
var errEvicted = errors.New("it had not authenticated itself before too many other connections came, or before the job ended")

// accept accepts connections until the listener is closed.
func (h *joinServer) accept() {
	warn := func(err error) { h.member.cfg.Logger.Warn("tutti: cannot accept connections", "reason", err) }
	acceptloop.Run(h.listener, warn, func(c net.Conn) {
		if !h.pendingConns.add(c) { // the listener is closed as well
			c.Close()
			return
		}
		h.wg.Go(func() {
			defer h.pendingConns.remove(c)
			h.admit(newConn(c))
		})
	})
}
