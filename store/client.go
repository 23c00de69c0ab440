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

// A Client is a [Store] that is served over TCP. A request that waits occupies a
// connection, so a Client opens more connections when several goroutines call at
// once. The caller of [Dial] closes it.
type Client struct {
	addr          string      // of the server, "host:port"
	config        Config      // written by Dial only
	configChecked bool        // config is checked against the server's address; written by Dial only
	tls           *tls.Config // nil: not encrypted; written by Dial only

	mu     sync.Mutex
	closed bool                     // guarded by mu
	idle   []*clientConn            // connections that no call uses; guarded by mu
	busy   map[*clientConn]struct{} // connections that a call uses; guarded by mu
}

var _ Store = (*Client)(nil)

const (
	// maxIdle is how many unused connections a client keeps open.
	maxIdle = 2
	// cancelTime bounds the wait for the server's answer to CANCEL_WAIT.
	cancelTime = 5 * time.Second
	// firstDialPause is the pause of Dial after it found that nothing listens. Each further
	// pause is twice as long, up to lastDialPause. Only the end of ctx bounds the attempts.
	firstDialPause = time.Millisecond
	lastDialPause  = 100 * time.Millisecond
	// redialTries is how often a connection is dialed in all while a full server resets it.
	// The pause after the first reset is redialPause. Each further pause is twice as long, so
	// the pauses add up to 0.63 s.
	redialTries = 7
	redialPause = 10 * time.Millisecond
	// helloTime bounds the wait for the server's answer on a new connection.
	helloTime = 30 * time.Second
)

// Dial connects to the server at addr, "host:port". While nothing listens there it
// tries again until the context ends, because the processes of a job start in any
// order.
func Dial(ctx context.Context, addr string, config Config) (*Client, error) {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, &Error{Op: "Dial", Addr: addr, Cause: kindf(ErrInvalid, "the address %q is not host:port", addr)}
	}
	c := &Client{addr: addr, config: config, busy: make(map[*clientConn]struct{})}
	c.config.Limits.fill()
	l, err := c.dialFirst(ctx)
	if err != nil {
		return nil, &Error{Op: "Dial", Addr: addr, Cause: err}
	}
	c.idle = append(c.idle, l)
	return c, nil
}

// dialFirst makes the first connection, for Dial. It dials until a server listens or ctx
// ends. Other failures are final.
func (c *Client) dialFirst(ctx context.Context) (*clientConn, error) {
	for pause := firstDialPause; ; pause = min(2*pause, lastDialPause) {
		l, err := c.dial(ctx)
		nobody, ok := errors.AsType[*net.OpError](err)
		if err == nil || !ok || nobody.Op != "dial" {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, &kindError{ErrLost, "not reached in time: " + nobody.Error() + "; is the store running, and is that its address?", errors.Join(err, ctx.Err())}
		case <-time.After(pause):
		}
	}
}

// dial makes one connection: the first one, and later those that take needs, also after a
// connection was lost. It redials when a full server resets the connection before it has
// authenticated, redialTries times in all. A server that does not listen is an error at once.
func (c *Client) dial(ctx context.Context) (*clientConn, error) {
	for try, pause := 1, redialPause; ; try, pause = try+1, 2*pause {
		l, err := c.connect(ctx)
		if err == nil || try == redialTries || !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

// connect makes one attempt at a connection: TCP, TLS and the handshake. If it fails, or
// if ctx ends first, the connection is closed.
func (c *Client) connect(ctx context.Context) (*clientConn, error) {
	d := net.Dialer{Timeout: c.config.HostTimeout} // zero on the first dial: bounded by ctx only
	raw, err := d.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return nil, &kindError{ErrLost, err.Error(), errors.Join(err, netctx.Err(ctx, err))}
	}
	if err := keepalive.Apply(raw, c.config.HostTimeout); err != nil {
		raw.Close()
		return nil, &kindError{ErrLost, err.Error(), err}
	}
	if !c.configChecked { // the first dial, in Dial
		if c.tls, err = c.config.fill(raw.RemoteAddr()); err != nil {
			raw.Close()
			return nil, err
		}
		c.configChecked = true
	}
	l := newClientConn(raw, &c.config.Limits)
	hello, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	err = l.whileOpen(hello, func() error { return l.open(&c.config, c.tls) })
	if err != nil {
		raw.Close()
		return nil, dialError(ctx, err)
	}
	return l, nil
}

// dialError turns the failure of a new connection into an error of this package.
func dialError(ctx context.Context, err error) error {
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

// A clientConn is one connection of a Client. One call uses it at a time.
type clientConn struct {
	raw    net.Conn
	conn   net.Conn // raw, or TLS on top of it
	in     *bufio.Reader
	limits *Limits
}

func newClientConn(raw net.Conn, limits *Limits) *clientConn {
	return &clientConn{raw: raw, conn: raw, in: bufio.NewReader(raw), limits: limits}
}

// open performs the TLS handshake, the authentication and the first PING.
func (l *clientConn) open(config *Config, encrypt *tls.Config) error {
	if encrypt != nil {
		t := tls.Client(l.raw, encrypt)
		if err := t.Handshake(); err != nil {
			return &kindError{ErrRefused, "no encrypted connection: " + err.Error(), err}
		}
		l.conn, l.in = t, bufio.NewReader(t)
	}
	if !config.Plain {
		if err := clientHandshake(l.conn, config.Secret); err != nil {
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
	if string(b[:]) == mark[:len(b)] { // a server of tutti that refuses the connection, and says why
		rest := make([]byte, statusBytes)
		copy(rest, b[:])
		if _, err := io.ReadFull(l.in, rest[len(b):]); err == nil && string(rest[:len(mark)]) == mark {
			return status(rest[len(mark)])
		}
	}
	return kindf(ErrAnswer, "the server answered a PING with something else")
}

// whileOpen calls f, which reads and writes the connection. When ctx ends, f's reads and
// writes fail and whileOpen returns the context's error.
func (l *clientConn) whileOpen(ctx context.Context, f func() error) error {
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

func (l *clientConn) number() (int64, error) {
	var b [8]byte
	_, err := io.ReadFull(l.in, b[:])
	return int64(binary.LittleEndian.Uint64(b[:])), err
}

// value reads a value of at most most bytes.
func (l *clientConn) value(most int) ([]byte, error) {
	n, err := l.number()
	if err != nil {
		return nil, err
	}
	if uint64(n) > uint64(most) {
		return nil, kindf(ErrAnswer, "it sent %d bytes where at most %d are allowed", uint64(n), most)
	}
	return readPieces(l.in, int(n), func(int64) error { return nil })
}

// readWaitAnswer reads the answer to a request that waits. When ctx ends it cancels the
// request on the server. usable reports whether the connection can carry another request.
func (l *clientConn) readWaitAnswer(ctx context.Context) (usable bool, err error) {
	var got byte
	read := func() error {
		b, err := l.in.ReadByte()
		got = b
		return err
	}
	err = l.whileOpen(ctx, read)
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
		// The answer crossed the cancellation; the cancellation's own answer follows.
		return read() == nil && got == answerCanceled, nil
	}
	return got == answerCanceled, err
}

// Close ends all connections; calls in progress fail with ErrClosed. Further calls
// of Close do nothing.
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

// take returns an idle connection, or a new one, which it dials without holding mu. It
// returns ErrClosed if the client is closed. A call whose connection is lost fails; the next
// call takes another connection.
func (c *Client) take(ctx context.Context) (*clientConn, error) {
	for fresh := (*clientConn)(nil); ; {
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

// put returns a connection to the client, which closes it if it is not usable.
func (c *Client) put(l *clientConn, usable bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, l)
	if !usable || c.closed || len(c.idle) >= maxIdle {
		l.raw.Close()
		return
	}
	c.idle = append(c.idle, l)
}
