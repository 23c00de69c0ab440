package control

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A virtualPipe is one direction of a connection in virtual time. Data arrives after a delay in
// order, or never. It is used inside a synctest bubble.
type virtualPipe struct {
	mu            sync.Mutex // guards the fields below, except news
	rnd           *rand.Rand
	parts         []part
	last          time.Time     // when the last part arrives
	end           error         // the reader's error after the last part
	shut          bool          // the reader has closed
	readDeadline  time.Time     // zero: none
	writeDeadline time.Time     // zero: none
	news          chan struct{} // wakes the reader
}

type part struct {
	at   time.Time
	data []byte
}

func newVirtualPipe(seed, number uint64) *virtualPipe {
	return &virtualPipe{rnd: rand.New(rand.NewPCG(seed, number)), news: make(chan struct{}, 1)}
}

// notify wakes the reader. The caller holds the lock.
func (p *virtualPipe) notify() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// delay returns a random latency, mostly small.
func (p *virtualPipe) delay() time.Duration {
	d := time.Duration(50+p.rnd.IntN(200)) * time.Microsecond
	if p.rnd.IntN(20) == 0 {
		d += time.Duration(p.rnd.IntN(10)) * time.Millisecond
	}
	return d
}

func (p *virtualPipe) write(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil || p.shut {
		return
	}
	if at := time.Now().Add(p.delay()); at.After(p.last) {
		p.last = at
	}
	p.parts = append(p.parts, part{p.last, append([]byte(nil), b...)})
	p.notify()
}

// finish ends the pipe with err, after the written data or overtaking it.
func (p *virtualPipe) finish(err error, overtake bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		return
	}
	p.end = err
	if overtake {
		p.parts = nil
	}
	if at := time.Now().Add(p.delay()); overtake || at.After(p.last) {
		p.last = at
	}
	p.notify()
}

func (p *virtualPipe) closeReader() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = true
	p.notify()
}

// read waits until data has arrived, and returns it. It returns an error after closeReader, at
// the reader's deadline, or at the end of the pipe. p.mu is not held while it waits.
func (p *virtualPipe) read(b []byte) (int, error) {
	for {
		p.mu.Lock()
		now := time.Now()
		next := p.last
		if len(p.parts) > 0 {
			next = p.parts[0].at
		}
		switch {
		case p.shut:
			p.mu.Unlock()
			return 0, net.ErrClosed
		case !p.readDeadline.IsZero() && !now.Before(p.readDeadline):
			p.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case len(p.parts) > 0 && !now.Before(next):
			first := &p.parts[0]
			n := copy(b, first.data)
			if first.data = first.data[n:]; len(first.data) == 0 {
				p.parts = p.parts[1:]
			}
			p.mu.Unlock()
			return n, nil
		case len(p.parts) == 0 && p.end != nil && !now.Before(next):
			err := p.end
			p.mu.Unlock()
			return 0, err
		}
		until := p.readDeadline
		if (len(p.parts) > 0 || p.end != nil) && (until.IsZero() || next.Before(until)) {
			until = next
		}
		p.mu.Unlock()
		if until.IsZero() {
			<-p.news
			continue
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-p.news:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// A virtualConn is one side of a connection over two pipes.
type virtualConn struct {
	net.Conn // nil: methods that are not defined below are not called
	out, in  *virtualPipe
	owner    *virtualHost
}

func (c *virtualConn) Read(b []byte) (int, error) { return c.in.read(b) }

func (c *virtualConn) Write(b []byte) (int, error) {
	c.out.mu.Lock()
	late := !c.out.writeDeadline.IsZero() && !time.Now().Before(c.out.writeDeadline)
	c.out.mu.Unlock()
	if late {
		return 0, os.ErrDeadlineExceeded
	}
	if err := c.owner.send(c, b); err != nil {
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
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *virtualConn) SetReadDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.readDeadline = t
	c.in.notify()
	return nil
}

func (c *virtualConn) SetWriteDeadline(t time.Time) error {
	c.out.mu.Lock()
	c.out.writeDeadline = t
	c.out.mu.Unlock()
	return nil
}

// A virtualListener is rank 0's listener.
type virtualListener struct {
	arrive chan net.Conn
	once   sync.Once
	shut   chan struct{}
}

func (l *virtualListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.arrive:
		return c, nil
	case <-l.shut:
		return nil, net.ErrClosed
	}
}

func (l *virtualListener) Close() error {
	l.once.Do(func() { close(l.shut) })
	return nil
}

func (l *virtualListener) Addr() net.Addr { return &net.TCPAddr{} }

// A virtualHost runs a rank. It fails at the rank's nth write. The lock order is virtualHost.mu, then
// virtualPipe.mu.
type virtualHost struct {
	mu          sync.Mutex // guards conns, written, dead and when; the other fields are set before the run
	conns       []*virtualConn
	written     int
	fails       int // number of the write at which it dies, from 0; -1: never
	vanish      bool
	hostTimeout time.Duration
	dead        bool
	listener    *virtualListener // rank 0's listener
	sendsLast   bool             // the last write is sent before the failure
	when        time.Time        // when it failed
}

// send sends b on a connection of the host, and counts the write. If the host is to fail at this
// write, it dies. With sendsLast, b is sent first; it is lost all the same if the host vanishes, or
// if the reset overtakes it.
func (h *virtualHost) send(c *virtualConn, b []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return syscall.EPIPE
	}
	if h.written == h.fails {
		if h.sendsLast {
			c.out.write(b)
		}
		h.die()
		return syscall.EPIPE
	}
	h.written++
	c.out.write(b)
	return nil
}

// die ends the rank. Its peers notice at once, or after hostTimeout. The caller holds h.mu.
func (h *virtualHost) die() {
	h.dead, h.when = true, time.Now()
	if h.listener != nil {
		h.listener.Close()
	}
	for i, c := range h.conns {
		c.in.closeReader()
		if h.vanish {
			c.out.mu.Lock()
			c.out.parts = nil
			c.out.mu.Unlock()
			time.AfterFunc(h.hostTimeout+time.Duration(i)*time.Millisecond, func() { c.out.finish(syscall.ETIMEDOUT, true) })
			continue
		}
		c.out.finish(syscall.ECONNRESET, i%2 == 0)
	}
}
