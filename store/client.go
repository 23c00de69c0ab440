package store

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/keepalive"
	"github.com/tutti-go/tutti/internal/netctx"
)

// A Client is a Store on the other side of a connection. A request that waits
// has a connection to itself, so a client opens more of them when several
// goroutines call at once. Whoever made it closes it.
type Client struct {
	addr    string
	config  Config
	checked bool        // config has been, against the server's address
	tls     *tls.Config // nil: none

	mu     sync.Mutex
	closed bool
	idle   []*link
	busy   map[*link]struct{}
}

var _ Store = (*Client)(nil)

const (
	// maxIdle is how many connections a client keeps for later.
	maxIdle = 2
	// cancelTime is how long a server may take to answer that a request waits
	// no longer.
	cancelTime = 5 * time.Second
	// dialTries is how often a connection is tried that the server resets.
	dialTries = 7
	// helloTime is how long a server may take to answer a new connection.
	helloTime = 30 * time.Second
)

// Dial connects to a store at an address, "host:port". It tries again until the
// context ends while nobody listens there: members of a job start in any order.
func Dial(ctx context.Context, addr string, config Config) (*Client, error) {
	c := &Client{addr: addr, config: config, busy: make(map[*link]struct{})}
	c.config.Limits.fill()
	l, err := c.dialFirst(ctx)
	if err != nil {
		return nil, &Error{Op: "Dial", Addr: addr, Cause: err}
	}
	c.idle = append(c.idle, l)
	return c, nil
}

func (c *Client) dialFirst(ctx context.Context) (*link, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		l, err := c.dial(ctx)
		nobody, ok := errors.AsType[*net.OpError](err)
		if err == nil || !ok || nobody.Op != "dial" {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, &kindError{ErrLost, "not reached in time: " + nobody.Error(), errors.Join(err, ctx.Err())}
		case <-time.After(pause):
		}
	}
}

// dial makes one connection. A server that has to make room may reset a connection
// that has not proved itself yet: then dial tries again.
func (c *Client) dial(ctx context.Context) (*link, error) {
	for try, pause := 1, 10*time.Millisecond; ; try, pause = try+1, 2*pause {
		l, err := c.connect(ctx)
		if err == nil || try == dialTries || !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

// connect tries once to make a connection.
func (c *Client) connect(ctx context.Context) (*link, error) {
	d := net.Dialer{Timeout: c.config.Silence} // zero, and so none, the first time
	raw, err := d.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return nil, &kindError{ErrLost, err.Error(), errors.Join(err, netctx.Err(ctx, err))}
	}
	if err := keepalive.Apply(raw, c.config.Silence); err != nil {
		raw.Close()
		return nil, &kindError{ErrLost, err.Error(), err}
	}
	if !c.checked { // so this is Dial
		if c.tls, err = c.config.fill(raw.RemoteAddr()); err != nil {
			raw.Close()
			return nil, err
		}
		c.checked = true
	}
	l := newLink(raw, &c.config.Limits)
	hello, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	err = l.during(hello, func() error { return l.open(&c.config, c.tls) })
	if err != nil {
		raw.Close()
		return nil, opening(ctx, err)
	}
	return l, nil
}

// opening says what went wrong with a new connection.
func opening(ctx context.Context, err error) error {
	if word, ok := errors.AsType[status](err); ok {
		return &kindError{ErrRefused, word.Error(), nil}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return kindf(ErrAnswer, "no answer in %v; something else than a store listens there, or PyTorch 1.x, which is not supported", helloTime)
	case errors.Is(err, ErrAnswer), errors.Is(err, ErrRefused):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return kindf(ErrRefused, "it ended the connection at once; see its log")
	}
	return &kindError{ErrRefused, err.Error(), err}
}

// A link is one connection.
type link struct {
	raw    net.Conn
	conn   net.Conn // raw, or TLS over it
	in     *bufio.Reader
	limits *Limits
}

func newLink(raw net.Conn, limits *Limits) *link {
	return &link{raw: raw, conn: raw, in: bufio.NewReader(raw), limits: limits}
}

// open carries out what comes before the first request.
func (l *link) open(config *Config, encrypt *tls.Config) error {
	if encrypt != nil {
		t := tls.Client(l.raw, encrypt)
		if err := t.Handshake(); err != nil {
			return &kindError{ErrRefused, "no encrypted connection: " + err.Error(), err}
		}
		l.conn, l.in = t, bufio.NewReader(t)
	}
	if !config.Plain {
		if err := greet(l.conn, config.Secret); err != nil {
			return err
		}
	}
	nonce := rand.Uint32()
	if _, err := l.conn.Write(hello(nonce)); err != nil {
		return err
	}
	var b [4]byte
	if _, err := io.ReadFull(l.in, b[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(b[:]) == nonce {
		return nil
	}
	if string(b[:]) == mark[:len(b)] {
		rest := make([]byte, statusBytes)
		copy(rest, b[:])
		if _, err := io.ReadFull(l.in, rest[len(b):]); err == nil && string(rest[:len(mark)]) == mark {
			return status(rest[len(mark)])
		}
	}
	return kindf(ErrAnswer, "it answered a PING with something else")
}

// during carries out f, and ends what it reads and writes when ctx ends. The
// error is then the context's.
func (l *link) during(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = l.raw.SetDeadline(time.Unix(1, 0))
		close(ended)
	})
	err := f()
	if stop() {
		return err
	}
	<-ended
	_ = l.raw.SetDeadline(time.Time{})
	if err != nil {
		return ctx.Err()
	}
	return nil
}

func (l *link) number() (int64, error) {
	var b [8]byte
	_, err := io.ReadFull(l.in, b[:])
	return int64(binary.LittleEndian.Uint64(b[:])), err
}

// value reads a value of at most so many bytes.
func (l *link) value(most int) ([]byte, error) {
	n, err := l.number()
	if err != nil {
		return nil, err
	}
	if uint64(n) > uint64(most) {
		return nil, kindf(ErrAnswer, "it sent %d bytes where at most %d are allowed", uint64(n), most)
	}
	return readPieces(l.in, int(n), func(int64) error { return nil })
}

// waited reads the answer to a request that waits. When ctx ends it says so to
// the server. The link is good for further use if usable is set.
func (l *link) waited(ctx context.Context) (usable bool, err error) {
	var got byte
	read := func() error {
		b, err := l.in.ReadByte()
		got = b
		return err
	}
	err = l.during(ctx, read)
	if err == nil && got != answerStop {
		return false, kindf(ErrAnswer, "it answered a waiting request with %d", got)
	}
	if err == nil || ctx.Err() == nil {
		return err == nil, err
	}
	_ = l.raw.SetDeadline(time.Now().Add(cancelTime))
	defer func() { _ = l.raw.SetDeadline(time.Time{}) }()
	if _, e := l.conn.Write([]byte{byte(idCancelWait)}); e != nil || read() != nil {
		return false, err
	}
	if got == answerStop {
		// The answer was on its way.
		return read() == nil && got == answerCanceled, nil
	}
	return got == answerCanceled, err
}

// Close ends all connections, and all calls with ErrClosed. It may be called
// more than once.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, l := range c.idle {
		l.raw.Close()
	}
	c.idle = nil
	for l := range c.busy {
		l.raw.Close()
	}
	return nil
}

// take returns a connection that nobody uses.
func (c *Client) take(ctx context.Context) (*link, error) {
	for fresh := (*link)(nil); ; {
		c.mu.Lock()
		switch n := len(c.idle); {
		case c.closed:
			c.mu.Unlock()
			if fresh != nil {
				fresh.raw.Close()
			}
			return nil, ErrClosed
		case fresh == nil && n > 0:
			fresh, c.idle = c.idle[n-1], c.idle[:n-1]
		}
		if fresh != nil {
			c.busy[fresh] = struct{}{}
			c.mu.Unlock()
			return fresh, nil
		}
		c.mu.Unlock()
		var err error
		if fresh, err = c.dial(ctx); err != nil {
			return nil, err
		}
	}
}

// give takes a connection back.
func (c *Client) give(l *link, usable bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, l)
	if !usable || c.closed || len(c.idle) >= maxIdle {
		l.raw.Close()
		return
	}
	c.idle = append(c.idle, l)
}
