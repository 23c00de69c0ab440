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

// control is how a process takes connections that belong to no mesh.
type controlHandler struct {
	rank, size int
	accept     func(from int, c net.Conn) // nil: it takes none
}

// Control has accept called, from any goroutine, with connections that other ranks have made by
// DialControl. They have proved which rank they are, and are encrypted if the job is. Control is
// called once, before Open, with this process's rank in the job and the number of ranks.
func (l *Listener) Control(rank, size int, accept func(from int, c net.Conn)) {
	l.controlHandler = controlHandler{rank, size, accept}
}

// deliverControl hands over a connection, or returns why not.
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
		return statusOK // the caller has gone
	}
	l.controlHandler.accept(h.from, l.makePersistent(c))
	return statusOK
}

// DialControl connects to the process of another rank, which has called Control, by one of its
// addresses.
func (l *Listener) DialControl(ctx context.Context, to int, addrs []string) (net.Conn, error) {
	var callers sync.WaitGroup
	defer callers.Wait()
	t := target{l: l, wg: &callers, connectTime: controlConnectTime, hello: hello{
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

// controlConnect bounds the connection to one address of a process.
const controlConnectTime = time.Second

// controlTries is how often DialControl calls a process that ends the handshake: it may have had
// no room, or be about to exit. The pauses between the calls are 31 ms together.
const controlTries = 6

// keep makes a connection that has shaken hands one for long use. The kernel ends it when the
// other side's host does not answer.
func (l *Listener) makePersistent(c net.Conn) net.Conn {
	plain := c
	if s := tlsConnOf(c); s != nil {
		s.quota = math.MaxInt
		plain = s.plain
	}
	_ = keepalive.Apply(plain, l.opts.DeadAfter) // where it cannot be had, frames of the caller find out
	_ = c.SetDeadline(time.Time{})
	return c
}
