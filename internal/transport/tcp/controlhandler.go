package tcp

import (
	"context"
	"errors"
	"math"
	"net"
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/keepalive"
)

// A controlHandler takes the connections that belong to no mesh.
type controlHandler struct {
	rank, size int
	accept     func(from int, c net.Conn) // nil: there is no handler
}

// Control registers accept for connections that other ranks make by DialControl. The connections
// are authenticated, and encrypted if the job is. accept is called from any goroutine. Control is
// called once, before Open, with this process's rank in the job and the number of ranks.
func (l *Listener) Control(rank, size int, accept func(from int, c net.Conn)) {
	l.controlHandler = controlHandler{rank, size, accept}
}

// deliverControl passes a connection to the handler, or returns why not; the caller then refuses it. It runs
// on the goroutine of the connection's handshake.
func (l *Listener) deliverControl(c net.Conn, h *hello) status {
	switch {
	case l.controlHandler.accept == nil || h.group != Group{}:
		return statusClosed
	case h.to != l.controlHandler.rank:
		return statusListener
	case h.size != l.controlHandler.size:
		return statusSize
	}
	_ = c.SetWriteDeadline(time.Now().Add(l.opts.HandshakeTimeout))
	if _, err := c.Write(welcome(statusOK)); err != nil {
		_ = c.Close()
		return statusOK // the dialer has closed the connection
	}
	l.controlHandler.accept(h.from, l.makePersistent(c))
	return statusOK
}

// DialControl connects to the process of another rank by one of its addresses. That process must have called
// Control. It retries a connection that ends without a reason, and returns when all its attempts have ended.
// The end of ctx ends it.
func (l *Listener) DialControl(ctx context.Context, to int, addrs []string) (net.Conn, error) {
	var attempts sync.WaitGroup
	defer attempts.Wait()
	t := target{l: l, wg: &attempts, connectTime: controlConnectTime, hello: hello{
		lane: laneControl, from: l.controlHandler.rank, to: to, size: l.controlHandler.size, job: l.job,
	}}
	for _, s := range addrs {
		a, err := parseAddr(s)
		if err != nil {
			return nil, err
		}
		t.addrs = append(t.addrs, a)
	}
	for try, pause := 1, time.Millisecond; ; try, pause = try+1, 2*pause {
		c, err := t.connect(ctx)
		if err == nil {
			return l.makePersistent(c), nil
		}
		if try == controlTries || !disconnected(err) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

// controlConnectTime bounds the connection to one address. Package sim has a copy of it, connectTime.
const controlConnectTime = time.Second

// controlTries bounds the dials of a process that ends the handshake without a reason: it may have
// too many pending connections or be about to exit. The pauses add up to 31 ms.
const controlTries = 6

// makePersistent removes the deadline and the limits of the handshake. The kernel ends the
// connection when the peer's host does not answer.
func (l *Listener) makePersistent(c net.Conn) net.Conn {
	plain := c
	if s := tlsConnOf(c); s != nil {
		s.quota = math.MaxInt
		plain = s.plain
	}
	_ = keepalive.Apply(plain, l.opts.DeadAfter) // without it the caller's heartbeats detect a silent host
	_ = c.SetDeadline(time.Time{})
	return c
}
