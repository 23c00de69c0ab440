package store

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/acceptloop"
)

// A Server holds a store and serves it to clients. It is safe for concurrent
// use. Whoever made it closes it.
type Server struct {
	listener net.Listener
	config   Config
	tls      *tls.Config // nil: none
	state    *state
	wg       sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	conns      map[*session]struct{}
	pending    pending
	dismissals int // connections that are being told why they are refused
}

// Listen starts a server at an address, "host:port"; port 0 means any. The
// context bounds only the listening itself.
func Listen(ctx context.Context, addr string, config Config) (*Server, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, &Error{Op: "Listen", Addr: addr, Cause: &kindError{ErrInvalid, "it cannot listen there: " + err.Error(), err}}
	}
	s, err := Serve(l, config)
	if err != nil {
		l.Close()
	}
	return s, err
}

// Serve starts a server on a listener, which from then on belongs to it. When
// it returns an error, the listener is still the caller's.
func Serve(l net.Listener, config Config) (*Server, error) {
	encrypt, err := config.fill(l.Addr())
	if err != nil {
		return nil, &Error{Op: "Listen", Addr: l.Addr().String(), Cause: err}
	}
	s := &Server{
		listener: l, config: config, tls: encrypt, state: newState(config.Limits),
		conns: make(map[*session]struct{}), pending: newPending(),
	}
	s.wg.Go(s.accept)
	return s, nil
}

// Addr returns where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Store returns the server's own way to its store: no connection, no limits on
// connections. It ends when the server is closed.
func (s *Server) Store() *Memory { return &Memory{s.state} }

// Close ends all connections and all calls that wait. It may be called more
// than once.
func (s *Server) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	for c := range s.conns {
		_ = c.raw.Close()
	}
	s.mu.Unlock()
	s.state.close()
	err := s.listener.Close()
	s.wg.Wait()
	if again {
		return nil
	}
	return err
}

// accept runs until the listener is closed.
func (s *Server) accept() {
	acceptloop.Run(s.listener, func(err error) { s.config.Logger.Warn("tutti store: cannot accept connections", "reason", err) }, s.receive)
}

// receive lets a connection begin. If there are too many, one that has not proved
// who it is makes room: an honest one needs milliseconds. While those are all new,
// receive waits, and further connections with it.
func (s *Server) receive(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && (len(s.conns) >= s.config.Limits.Conns || s.pending.all.Len() >= s.config.Limits.Pending) {
		slow := s.pending.oldest()
		if slow == nil {
			s.refuseFull(conn)
			return
		}
		if age := time.Since(slow.began); age < evictAge {
			s.awaitRoom(evictAge - age)
			continue
		}
		slow.evicted = true
		s.drop(slow)
		reset(slow.raw)
	}
	if s.closed {
		_ = conn.Close()
		return
	}
	c := newSession(s, conn)
	s.conns[c] = struct{}{}
	s.pending.add(c)
	s.wg.Go(func() { s.run(c) })
}

// awaitRoom waits until a session may have left, and no longer than that. The
// caller holds the lock, which is free meanwhile.
func (s *Server) awaitRoom(most time.Duration) {
	s.mu.Unlock()
	defer s.mu.Lock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-s.pending.room:
	case <-timer.C:
	}
}

// refuseFull refuses a connection for which there is no room. The caller holds the
// lock.
func (s *Server) refuseFull(conn net.Conn) {
	if s.dismissals >= maxDismissals {
		_ = conn.Close()
		return
	}
	s.dismissals++
	s.wg.Go(func() {
		s.dismiss(conn, statusFull)
		s.mu.Lock()
		s.dismissals--
		s.mu.Unlock()
	})
}

// drop forgets a session. The caller holds the lock.
func (s *Server) drop(c *session) {
	delete(s.conns, c)
	s.settle(c)
}

// settle counts a session as one that has proved who it is. The caller holds the
// lock.
func (s *Server) settle(c *session) { s.pending.remove(c) }

// run serves one connection to its end, and says in one line of the log if
// that was not a good one.
func (s *Server) run(c *session) {
	err := c.serve()
	s.mu.Lock()
	known := c.gate.open
	s.drop(c)
	evicted, closed := c.evicted, s.closed
	s.mu.Unlock()
	switch word, refused := errors.AsType[status](err); {
	case closed:
	case evicted:
		s.log(c.raw, errors.New("it made room for others: it had not proved who it is"))
	case refused:
		s.dismiss(c.conn, word)
	case err == nil || known && cutOff(err):
	case cutOff(err):
		s.log(c.raw, errLeft)
	default:
		s.log(c.raw, err)
	}
	c.end()
}

// dismiss says why a connection is refused, on both sides.
func (s *Server) dismiss(c net.Conn, why status) {
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.Write(answer(why))
	// What a client has sent and nobody reads would take the answer away from
	// it. So it is read, for a moment.
	if t, ok := c.(interface{ CloseWrite() error }); ok && t.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = io.CopyN(io.Discard, c, 64<<10)
	}
	_ = c.Close()
	s.log(c, why)
}

func (s *Server) log(c net.Conn, why error) {
	s.config.Logger.LogAttrs(context.Background(), slog.LevelWarn, "tutti store: refused a connection",
		slog.String("from", c.RemoteAddr().String()), slog.String("reason", why.Error()))
}

// cutOff reports whether an error is that the other side is gone.
func cutOff(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &op) && !op.Timeout()
}
