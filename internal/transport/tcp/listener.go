package tcp

import (
	"container/list"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/acceptloop"
)

// A Listener accepts the connections of all meshes of a process. It is safe for concurrent use.
type Listener struct {
	opts   Options
	job    [16]byte
	id     [8]byte
	addrs  []string
	socket *net.TCPListener
	wg     sync.WaitGroup

	mu      sync.Mutex
	pending *list.List // of *pendingConn, oldest first; guarded by mu
	closed  bool       // guarded by mu

	registry       registry
	controlHandler controlHandler
}

// A pendingConn is a connection without a proof.
type pendingConn struct {
	conn    net.Conn
	evicted bool // guarded by Listener.mu
}

// Listen is Bind and Open for a job whose name and secret are known. The caller closes the listener
// after its meshes.
func Listen(opts Options) (*Listener, error) {
	if len(opts.Secret) == 0 {
		return nil, errNoSecret
	}
	l, err := Bind(opts)
	if err != nil {
		return nil, err
	}
	return l, l.Open(opts.Job, opts.Secret)
}

var errNoSecret = errors.New("tcp: no secret")

// Bind makes a listener that has addresses but accepts no connection until Open. A process
// publishes its addresses before it knows the job's key. opts.Job and opts.Secret are not used. The
// kernel queues early connections.
func Bind(opts Options) (*Listener, error) {
	opts = opts.withDefaults()
	config := net.ListenConfig{KeepAlive: -1}
	socket, err := config.Listen(context.Background(), "tcp", opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	l := &Listener{opts: opts, socket: socket.(*net.TCPListener), pending: list.New()}
	_, _ = rand.Read(l.id[:]) // never fails
	hosts, err := offeredAddrs(l.socket.Addr().(*net.TCPAddr).AddrPort(), opts.Interface)
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	for _, h := range hosts {
		l.addrs = append(l.addrs, addr{h, l.id}.String())
	}
	l.registry.setup(&l.opts)
	return l, nil
}

// Open begins to accept connections of a job. It is called once, before Mesh.
func (l *Listener) Open(job string, secret []byte) error {
	if len(secret) == 0 {
		return errors.Join(errNoSecret, l.Close())
	}
	l.job, l.opts.Secret = jobID(job), secret
	l.wg.Go(l.accept)
	return nil
}

// Addrs returns the addresses of this process for MeshOptions.Peers of other ranks.
func (l *Listener) Addrs() []string { return l.addrs }

// Close stops listening and closes pending and parked connections. It waits for the goroutines of the
// listener. Meshes stay open. Close may be called more than once.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	for e := l.pending.Front(); e != nil; e = e.Next() {
		_ = e.Value.(*pendingConn).conn.Close()
	}
	l.mu.Unlock()
	err := l.socket.Close()
	l.registry.stop()
	l.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// accept runs until the socket is closed.
func (l *Listener) accept() {
	acceptloop.Run(l.socket, func(err error) { l.opts.Logger.Warn("cannot accept connections", "error", err) }, l.startHandshake)
}

// startHandshake starts the handshake of a new connection on a goroutine that l.wg counts. If too many are
// pending, the oldest is closed: a rank needs milliseconds. The goroutine that accepts calls it; l.mu guards
// l.pending.
func (l *Listener) startHandshake(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = c.Close()
		return
	}
	if l.pending.Len() >= l.opts.MaxPending {
		oldest := l.pending.Remove(l.pending.Front()).(*pendingConn)
		oldest.evicted = true
		_ = oldest.conn.Close()
	}
	p := &pendingConn{conn: c}
	e := l.pending.PushBack(p)
	l.wg.Go(func() { l.handshake(p, e) })
}

// handshake authenticates a connection and delivers it, or refuses it with one line in the log. It runs on a
// goroutine of its own. l.mu guards p.evicted, which startHandshake of another connection sets.
func (l *Listener) handshake(p *pendingConn, e *list.Element) {
	c := p.conn
	_ = c.SetDeadline(time.Now().Add(l.opts.HandshakeTimeout))
	var h hello
	c, err := l.admit(c, &h)
	l.mu.Lock()
	if !p.evicted {
		l.pending.Remove(e)
	}
	evicted, closed := p.evicted, l.closed
	l.mu.Unlock()
	switch {
	case closed:
		_ = c.Close()
	case evicted:
		l.refuse(c, slog.LevelWarn, errors.New("too many connections are not authenticated yet"))
	case errors.Is(err, errCallerLeft):
		l.refuse(c, slog.LevelDebug, err)
	case err != nil:
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it closed the connection before it sent its hello")
		}
		l.refuse(c, slog.LevelWarn, err)
	default:
		_ = c.SetDeadline(time.Time{})
		l.deliver(c, &h)
	}
}

// admit performs the handshake up to the dialer's proof. It returns the connection to use, also
// with an error.
func (l *Listener) admit(c net.Conn, h *hello) (net.Conn, error) {
	var binding []byte
	if l.opts.TLS != nil {
		s, err := newTLSServer(c, l.opts.TLS)
		if err != nil {
			if disconnected(err) {
				err = errCallerLeft
			}
			return c, err
		}
		c, binding = s, s.binding
	}
	return c, serverHandshake(c, h, l.opts.Secret, binding, func(h *hello) error {
		switch {
		case h.job != l.job:
			return statusJob
		case h.listener != l.id && h.listener != [8]byte{}:
			return statusListener
		}
		return nil
	})
}

// deliver passes an authenticated connection to its mesh, or parks it until the mesh is made. It runs on the
// goroutine of the handshake.
func (l *Listener) deliver(c net.Conn, h *hello) {
	call := &incoming{conn: c, hello: *h}
	if h.lane == laneControl {
		if s := l.deliverControl(c, h); s != statusOK {
			l.refuseWith(call, s)
		}
		return
	}
	m, s := l.registry.find(call)
	if m != nil {
		s = m.accept(call)
	}
	if s != statusOK {
		l.refuseWith(call, s)
	}
}

// refuseWith sends the reason to an authenticated dialer and closes the connection.
func (l *Listener) refuseWith(c *incoming, s status) {
	level := slog.LevelWarn
	if s == statusCrossed || s == statusClosed {
		level = slog.LevelDebug // normal when ranks connect or leave
	}
	_ = c.conn.SetDeadline(time.Now().Add(l.opts.HandshakeTimeout))
	_, _ = c.conn.Write(welcome(s))
	l.refuse(c.conn, level, s, "from", c.hello.from, "to", c.hello.to, "lane", c.hello.lane)
}

func (l *Listener) refuse(c net.Conn, level slog.Level, why error, about ...any) {
	_ = c.Close()
	about = append([]any{"remote", c.RemoteAddr().String(), "reason", why.Error()}, about...)
	l.opts.Logger.Log(context.Background(), level, "connection refused", about...)
}
