package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/keepalive"
	"github.com/tutti-go/tutti/internal/netctx"
	"github.com/tutti-go/tutti/internal/transport"
)

const (
	// stagger is the delay between dials of two addresses of a peer.
	stagger = 200 * time.Millisecond
	// retryPause is the pause before a peer is dialed again. maxTries bounds the dials of a peer
	// whose connection ends during the handshake.
	retryPause = 50 * time.Millisecond
	maxTries   = 6
)

// dial dials a peer until it answers, refuses or has exited. It runs on the goroutine that startDial has
// started. The end of ctx ends it with ctx.Err(). It pauses between two attempts until the slot is settled.
func (m *Mesh) dial(ctx context.Context, s *slot) (*conn, error) {
	for try := 1; ; try++ {
		c, err := m.dialOnce(ctx, s)
		if err == nil {
			return c, nil
		}
		switch {
		case netctx.Err(ctx, err) != nil:
			return nil, ctx.Err()
		case errors.Is(err, statusClosed):
			return nil, transport.ErrClosed
		case errors.Is(err, statusCrossed):
			// The peer's own dial is under way. If the peer exits before it arrives, the next dial
			// fails.
			try = 1
		case try < maxTries && disconnected(err):
		default:
			return nil, err
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
		case <-time.After(time.Duration(try) * retryPause):
		}
	}
}

// disconnected reports whether a handshake ended without a reason: the listener may have had too
// many pending connections.
func disconnected(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// dialOnce dials the addresses of a peer, takes the first at which the right listener answers, and
// waits for the welcome.
func (m *Mesh) dialOnce(ctx context.Context, s *slot) (*conn, error) {
	t := target{
		l: m.l, wg: &m.wg, addrs: m.peers[s.peer], limit: m.l.opts.HandshakeTimeout,
		hello: hello{lane: s.lane, from: m.rank, to: s.peer, size: m.size, job: m.l.job, group: m.key.group},
	}
	c, err := t.connect(ctx)
	if err != nil {
		return nil, err
	}
	return detachFD(c, m.l.opts.DeadAfter)
}

// A target is a listener to connect to.
type target struct {
	l     *Listener
	wg    *sync.WaitGroup // counts the attempts
	addrs []addr
	hello hello
	// limit bounds the handshake up to the proof. Zero: only the context does.
	limit time.Duration
	// connectTime bounds the connection to one address. Zero: only limit does.
	connectTime time.Duration
}

// connect returns a connection for which the listener has sent a welcome. The end of ctx closes the
// connection and ends the wait for the welcome. After an error no connection is left.
func (t *target) connect(ctx context.Context) (net.Conn, error) {
	answered, err := t.firstAnswer(ctx)
	if err != nil {
		return nil, err
	}
	c := answered.conn
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	// The welcome comes when the peer has made the group, so there is no deadline.
	_ = c.SetDeadline(time.Time{})
	_, err = c.Write(answered.proof)
	if err == nil {
		var b [welcomeBytes]byte
		err = readAnswer(c, b[:], 8)
	}
	if err != nil || !stop() {
		_ = c.Close()
		return nil, errors.Join(ctx.Err(), err)
	}
	return c, nil
}

// An attempt is the result of dialing one address.
type attempt struct {
	conn  net.Conn
	proof []byte
	err   error
}

// attemptErrors are the errors of all addresses. Error lists equal texts once.
type attemptErrors []error

func (a attemptErrors) Error() string {
	var texts []string
	for _, err := range a {
		if t := err.Error(); !slices.Contains(texts, t) {
			texts = append(texts, t)
		}
	}
	return strings.Join(texts, "; ")
}

func (a attemptErrors) Unwrap() []error { return a }

// firstAnswer dials the addresses, each stagger after the one before, or at once after a failure; t.wg counts
// the goroutines of the attempts. It returns the first connection that passes the handshake up to the proof,
// and closes the others without sending a proof. If none passes, or ctx or t.limit ends, the error holds the
// reason of each attempt.
func (t *target) firstAnswer(ctx context.Context) (attempt, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if t.limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, t.limit)
		defer stop()
	}
	answers := make(chan attempt, len(t.addrs))
	next, running := 0, 0
	start := func() {
		if next < len(t.addrs) && ctx.Err() == nil {
			a := t.addrs[next]
			next++
			running++
			t.wg.Go(func() { answers <- t.tryAddr(ctx, a) })
		}
	}
	// The losing attempts end with the context.
	defer func() {
		if rest := running; rest > 0 {
			cancel()
			t.wg.Go(func() {
				for range rest {
					if got := <-answers; got.conn != nil {
						_ = got.conn.Close()
					}
				}
			})
		}
	}()
	start()
	timer := time.NewTicker(stagger)
	defer timer.Stop()
	var errs attemptErrors
	for running > 0 {
		select {
		case got := <-answers:
			running--
			if got.err == nil {
				return got, nil
			}
			errs = append(errs, got.err)
			start()
		case <-timer.C:
			start()
		}
	}
	if err := ctx.Err(); err != nil {
		errs = append(errs, err)
	}
	return attempt{}, errs
}

// tryAddr connects to one address and runs clientHandshake, on a goroutine of its own that t.wg counts. The
// end of ctx ends both. After an error it has closed the connection.
func (t *target) tryAddr(ctx context.Context, a addr) attempt {
	d := net.Dialer{KeepAlive: -1, Timeout: t.connectTime}
	c, err := d.DialContext(ctx, "tcp", a.hostPort)
	if err != nil {
		return attempt{err: err}
	}
	plain := c
	if end, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(end)
	}
	stop := context.AfterFunc(ctx, func() { _ = plain.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if t.limit == 0 {
		_ = keepalive.Apply(c, t.l.opts.DeadAfter) // without it the deadline ends the wait
	}
	var binding []byte
	if config := t.l.opts.TLS; config != nil {
		sc, err := newTLSClient(c, config)
		if err != nil {
			_ = c.Close()
			return attempt{err: err}
		}
		c, binding = sc, sc.binding
	}
	h := t.hello
	h.listener = a.id
	proof, err := clientHandshake(c, &h, t.l.opts.Secret, binding)
	if err != nil {
		_ = c.Close()
		return attempt{err: err}
	}
	return attempt{conn: c, proof: proof}
}
