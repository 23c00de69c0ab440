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
	// stagger is the head start that each address of a peer has over the next.
	stagger = 200 * time.Millisecond
	// again is the pause before a peer is called once more, tries how often
	// that is done when the handshake was cut off.
	retryPause = 50 * time.Millisecond
	maxTries   = 6
)

// dial calls a peer until it answers or is known to be gone.
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
			// The peer's own call is on its way, unless the peer dies first;
			// then the next call finds out.
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

// cutOff reports whether a handshake ended in a way that says nothing about
// the peer: its listener may just have had too many callers.
func disconnected(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// dialOnce makes one call: it tries the peer's addresses, takes the first
// where the right listener answers, and waits to be welcome.
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

// A target is a listener that is called.
type target struct {
	l     *Listener
	wg    *sync.WaitGroup // of the attempts
	addrs []addr
	hello hello
	// limit bounds the handshake up to the proof. Zero: the context alone does.
	limit time.Duration
	// connectTime bounds the connection to one address. Zero: limit alone does.
	connectTime time.Duration
}

// connect returns a connection on which this caller is welcome.
func (t *target) connect(ctx context.Context) (net.Conn, error) {
	answered, err := t.firstAnswer(ctx)
	if err != nil {
		return nil, err
	}
	c := answered.conn
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	// The welcome comes when the peer has made the group.
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

// An attempt is one address's answer.
type attempt struct {
	conn  net.Conn
	proof []byte
	err   error
}

// attemptErrors are why no address answered. Addresses often fail alike.
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

// race calls the addresses, each a little after the one before it or at
// once when that has failed, and returns the first that passes the handshake
// up to the proof. The others never see one and are closed. If none does, the error
// has the reason of each attempt.
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
	// The attempts that have lost end with the context.
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

// knock connects to one address and finds out whether the right listener is
// there.
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
		_ = keepalive.Apply(c, t.l.opts.DeadAfter) // where it cannot be had, the deadline ends the wait
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
