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

// A Server holds a store and serves it to clients. It is safe for concurrent use.
// The caller of [Listen] or [Serve] closes it.
type Server struct {
	listener net.Listener
	config   Config
	tls      *tls.Config // nil: not encrypted
	state    *state
	wg       sync.WaitGroup // the accept loop, the sessions and their waiting goroutines

	mu         sync.Mutex
	closed     bool                  // guarded by mu
	conns      map[*session]struct{} // the open sessions; guarded by mu
	pending    pending               // the open sessions that have not authenticated; guarded by mu
	dismissals int                   // refused connections that are being answered; guarded by mu
}

// Listen starts a server at addr, "host:port". Port 0 means any free port. The
// context bounds only the call itself.
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

// Serve starts a server on a listener, which the server then owns and closes. If
// Serve returns an error, the caller still owns the listener.
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

// Addr returns the address of the listener.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Store returns direct access to the server's store, without a connection. It ends
// when the server is closed.
func (s *Server) Store() *Memory { return &Memory{s.state} }

// Close ends all connections and waiting calls, and returns when all goroutines of the server
// have returned. It may be called more than once; only the first call returns an error.
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

// accept accepts connections until the listener is closed.
func (s *Server) accept() {
	acceptloop.Run(s.listener, func(err error) { s.config.Logger.Warn("tutti store: cannot accept connections", "reason", err) }, s.receive)
}

// receive starts a session for a new connection. If the server is full, it closes a
// session that is older than evictAge and has not authenticated: a correct client
// needs milliseconds for that. While all pending sessions are younger, receive waits,
// and so does the accept loop. It holds mu, except while it waits.
func (s *Server) receive(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && (len(s.conns) >= s.config.Limits.Conns || s.pending.sessions.Len() >= s.config.Limits.Pending) {
		slow := s.pending.oldest()
		if slow == nil {
			s.refuseFull(conn)
			return
		}
		if age := time.Since(slow.accepted); age < evictAge {
			s.awaitRoom(evictAge - age)
			continue
		}
		slow.evicted = true
		s.drop(slow)
		resetConn(slow.raw)
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

// awaitRoom waits until a pending session has left, or until most has passed. The
// caller holds mu, which awaitRoom releases while it waits.
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

// refuseFull refuses a connection because the server is full. The caller holds mu.
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

// drop removes a session. The caller holds mu.
func (s *Server) drop(c *session) {
	delete(s.conns, c)
	s.authenticated(c)
}

// authenticated records that a session has authenticated. The caller holds mu.
func (s *Server) authenticated(c *session) { s.pending.remove(c) }

// run serves one connection until it ends. It logs one line if the connection was
// refused, evicted or broke the protocol, and a line for debugging if the client ended it before its proof.
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
		s.log(slog.LevelWarn, c.raw, errors.New("evicted to make room for other connections: the client had not authenticated"))
	case refused:
		s.dismiss(c.conn, word)
	case err == nil || known && cutOff(err):
	case cutOff(err):
		s.log(slog.LevelDebug, c.raw, errNoProof)
	default:
		s.log(slog.LevelWarn, c.raw, err)
	}
	c.end()
}

// dismiss sends the client the reason for the refusal, closes and logs it.
func (s *Server) dismiss(c net.Conn, why status) {
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.Write(answer(why))
	// Closing a connection with unread bytes resets it, and the client would lose the
	// answer. So dismiss reads for a moment.
	if t, ok := c.(interface{ CloseWrite() error }); ok && t.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = io.CopyN(io.Discard, c, 64<<10)
	}
	_ = c.Close()
	s.log(slog.LevelWarn, c, why)
}

func (s *Server) log(level slog.Level, c net.Conn, why error) {
	s.config.Logger.LogAttrs(context.Background(), level, "tutti store: refused a connection",
		slog.String("from", c.RemoteAddr().String()), slog.String("reason", why.Error()))
}

// cutOff reports whether an error means that the peer ended the connection.
func cutOff(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &op) && !op.Timeout()
}
