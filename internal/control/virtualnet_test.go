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

// A line is one way of a connection in virtual time: what is written arrives
// later, in order, or never. It is made and used in a synctest bubble.
type virtualPipe struct {
	mu     sync.Mutex
	rnd    *rand.Rand
	parts  []part
	last   time.Time // when the last part arrives
	end    error     // what a reader gets after the last part
	shut   bool      // the reader's side is closed
	before time.Time // until when a reader waits; zero: without end
	by     time.Time // after that nothing can be written; zero: always
	news   chan struct{}
}

type part struct {
	at   time.Time
	data []byte
}

func newLine(seed, number uint64) *virtualPipe {
	return &virtualPipe{rnd: rand.New(rand.NewPCG(seed, number)), news: make(chan struct{}, 1)}
}

// tell lets the reader look again. The lock is held.
func (l *virtualPipe) tell() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// delay is how long something is on its way: mostly little.
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

// finish ends the line after what was written, or overtakes that.
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

// A wired conn is a rank's side of a connection over two lines.
type virtualConn struct {
	net.Conn // nil: what is not below is not called
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
	if !c.owner.dead { // nobody hears of what the dead do
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

// A gate is rank 0's listener.
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

// A host is where a rank runs. It fails when its rank writes for the nth time.
type virtualHost struct {
	mu      sync.Mutex
	conns   []*virtualConn
	written int
	fails   int // at which write; -1: never
	vanish  bool
	silence time.Duration
	dead    bool
	door    *virtualListener // rank 0's
	half    bool             // the last write leaves before that
	when    time.Time        // it failed
}

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

// die ends the rank. Whoever is connected to it notices at once, or when it has
// been silent for long.
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
