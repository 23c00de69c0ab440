package control

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"
)

// A virtualPipe is one direction of a connection in virtual time. Data arrives after a delay in
// order, or never. It is used inside a synctest bubble.
type virtualPipe struct {
	mu     sync.Mutex // guards the fields below, except news
	rnd    *rand.Rand
	parts  []part
	last   time.Time     // when the last part arrives
	end    error         // the reader's error after the last part
	shut   bool          // the reader has closed
	before time.Time     // the reader's deadline; zero: none
	by     time.Time     // the writer's deadline; zero: none
	news   chan struct{} // wakes the reader
}

type part struct {
	at   time.Time
	data []byte
}

func newLine(seed, number uint64) *virtualPipe {
	return &virtualPipe{rnd: rand.New(rand.NewPCG(seed, number)), news: make(chan struct{}, 1)}
}

// tell wakes the reader. The caller holds the lock.
func (l *virtualPipe) tell() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// delay returns a random latency, mostly small.
func (l *virtualPipe) delay() time.Duration {
	d := time.Duration(50+l.rnd.IntN(200)) * time.Microsecond
	if l.rnd.IntN(20) == 0 {
		d += time.Duration(l.rnd.IntN(10)) * time.Millisecond
	}
	return d
}

func (l *virtualPipe) write(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil || l.shut {
		return
	}
	if at := time.Now().Add(l.delay()); at.After(l.last) {
		l.last = at
	}
	l.parts = append(l.parts, part{l.last, append([]byte(nil), b...)})
	l.tell()
}

// finish ends the pipe with err, after the written data or overtaking it.
func (l *virtualPipe) finish(err error, overtake bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil {
		return
	}
	l.end = err
	if overtake {
		l.parts = nil
	}
	if at := time.Now().Add(l.delay()); overtake || at.After(l.last) {
		l.last = at
	}
	l.tell()
}

func (l *virtualPipe) closeReader() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = true
	l.tell()
}

// read waits until data has arrived, and returns it. It returns an error after closeReader, at
// the reader's deadline, or at the end of the pipe. l.mu is not held while it waits.
func (l *virtualPipe) read(b []byte) (int, error) {
	for {
		l.mu.Lock()
		now := time.Now()
		next := l.last
		if len(l.parts) > 0 {
			next = l.parts[0].at
		}
		switch {
		case l.shut:
			l.mu.Unlock()
			return 0, net.ErrClosed
		case !l.before.IsZero() && !now.Before(l.before):
			l.mu.Unlock()
			return 0, errDeadline
		case len(l.parts) > 0 && !now.Before(next):
			p := &l.parts[0]
			n := copy(b, p.data)
			if p.data = p.data[n:]; len(p.data) == 0 {
				l.parts = l.parts[1:]
			}
			l.mu.Unlock()
			return n, nil
		case len(l.parts) == 0 && l.end != nil && !now.Before(next):
			err := l.end
			l.mu.Unlock()
			return 0, err
		}
		until := l.before
		if (len(l.parts) > 0 || l.end != nil) && (until.IsZero() || next.Before(until)) {
			until = next
		}
		l.mu.Unlock()
		if until.IsZero() {
			<-l.news
			continue
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-l.news:
		case <-timer.C:
		}
		timer.Stop()
	}
}

var errDeadline = errors.New("the deadline has passed")

// A virtualConn is one side of a connection over two pipes.
type virtualConn struct {
	net.Conn // nil: methods that are not defined below are not called
	out, in  *virtualPipe
	owner    *virtualHost
}

func (c *virtualConn) Read(b []byte) (int, error) { return c.in.read(b) }

func (c *virtualConn) Write(b []byte) (int, error) {
	c.out.mu.Lock()
	late := !c.out.by.IsZero() && !time.Now().Before(c.out.by)
	c.out.mu.Unlock()
	if late {
		return 0, errDeadline
	}
	if err := c.owner.writes(c, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (c *virtualConn) Close() error {
	c.owner.mu.Lock()
	if !c.owner.dead { // writes of a dead process are lost
		c.out.finish(io.EOF, false)
	}
	c.owner.mu.Unlock()
	c.in.closeReader()
	return nil
}

func (c *virtualConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func (c *virtualConn) SetDeadline(t time.Time) error {
	c.in.mu.Lock()
	c.in.before = t
	c.in.tell()
	c.in.mu.Unlock()
	return c.SetWriteDeadline(t)
}

func (c *virtualConn) SetWriteDeadline(t time.Time) error {
	c.out.mu.Lock()
	c.out.by = t
	c.out.mu.Unlock()
	return nil
}

// A virtualListener is rank 0's listener.
type virtualListener struct {
	arrive chan net.Conn
	once   sync.Once
	shut   chan struct{}
}

func (g *virtualListener) Accept() (net.Conn, error) {
	select {
	case c := <-g.arrive:
		return c, nil
	case <-g.shut:
		return nil, net.ErrClosed
	}
}

func (g *virtualListener) Close() error {
	g.once.Do(func() { close(g.shut) })
	return nil
}

func (g *virtualListener) Addr() net.Addr { return &net.TCPAddr{} }

// A virtualHost runs a rank. It fails at the rank's nth write. The lock order is virtualHost.mu, then
// virtualPipe.mu.
type virtualHost struct {
	mu      sync.Mutex // guards conns, written, dead and when; the other fields are set before the run
	conns   []*virtualConn
	written int
	fails   int // number of the write; -1: never
	vanish  bool
	silence time.Duration
	dead    bool
	door    *virtualListener // rank 0's listener
	half    bool             // the last write is sent before the failure
	when    time.Time        // when it failed
}

// writes sends b on a connection of the host, and counts the write. If the host is to fail at
// this write, it dies, and b is lost unless half is set.
func (h *virtualHost) writes(c *virtualConn, b []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return syscall.EPIPE
	}
	if h.written == h.fails {
		if h.half {
			c.out.write(b)
		}
		h.die()
		return syscall.EPIPE
	}
	h.written++
	c.out.write(b)
	return nil
}

// die ends the rank. Its peers notice at once, or after the silence. The caller holds h.mu.
func (h *virtualHost) die() {
	h.dead, h.when = true, time.Now()
	if h.door != nil {
		h.door.Close()
	}
	for i, c := range h.conns {
		c.in.closeReader()
		if h.vanish {
			c.out.mu.Lock()
			c.out.parts = nil
			c.out.mu.Unlock()
			time.AfterFunc(h.silence+time.Duration(i)*time.Millisecond, func() { c.out.finish(syscall.ETIMEDOUT, true) })
			continue
		}
		c.out.finish(syscall.ECONNRESET, i%2 == 0)
	}
}
