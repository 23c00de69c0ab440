package tcp

import (
	"crypto/tls"
	"errors"
	"io"
	"net"

	"github.com/tutti-go/tutti/internal/jobtls"
)

const (
	// recordBytes bounds the data encrypted at once: a few TLS records, which leave in one system
	// call.
	recordBytes = 64 << 10
	// maxUnproven bounds the bytes read from a dialer before its TLS handshake is complete.
	maxUnproven = 64 << 10
)

// A tlsConn is a TLS session over a connection. During the handshake it blocks like an ordinary
// connection. After setFD its reads and writes do not block: ciphertext that the socket does not
// take is kept, and nothing more is encrypted until it is sent. Two ranks that both send therefore
// cannot deadlock. One goroutine at a time uses it.
type tlsConn struct {
	*tls.Conn
	tlsBuffers
	binding []byte // identifies the session; the same on both sides
	scratch []byte // buffer for a header and the beginning of its body
}

// tlsBuffers is the connection below the TLS session.
type tlsBuffers struct {
	plain   net.Conn
	quota   int // bytes that may still be read before setFD
	fd      int // 0: still in the handshake, plain is used
	readBuf []byte
	in      []byte // ciphertext that was read and not yet decrypted
	out     []byte // ciphertext that is not yet sent
	sent    int    // bytes of out that are sent
}

// tlsLower is the net.Conn below TLS. It keeps the methods of tlsBuffers out of tlsConn.
type tlsLower struct {
	net.Conn
	*tlsBuffers
}

func (l tlsLower) Read(p []byte) (int, error)  { return l.read(p) }
func (l tlsLower) Write(p []byte) (int, error) { return l.write(p) }

func newTLSServer(c net.Conn, config *tls.Config) (*tlsConn, error) {
	return newTLSConn(c, func(low net.Conn) *tls.Conn { return tls.Server(low, config) })
}

func newTLSClient(c net.Conn, config *tls.Config) (*tlsConn, error) {
	return newTLSConn(c, func(low net.Conn) *tls.Conn { return tls.Client(low, config) })
}

// newTLSConn performs a TLS handshake over c, within the deadline of c and maxUnproven bytes.
func newTLSConn(c net.Conn, over func(net.Conn) *tls.Conn) (*tlsConn, error) {
	s := &tlsConn{tlsBuffers: tlsBuffers{plain: c, quota: maxUnproven}}
	s.Conn = over(tlsLower{c, &s.tlsBuffers})
	// The handshake is under the deadline of c.
	if err := s.Handshake(); err != nil {
		return nil, err
	}
	var err error
	s.binding, err = jobtls.Binding(s.Conn, "tcp")
	return s, err
}

// setFD switches to non-blocking calls on a descriptor.
func (s *tlsConn) setFD(fd int) {
	s.fd = fd
	s.scratch = make([]byte, recordBytes)
	s.readBuf = make([]byte, recordBytes)
}

// Close closes the connection without a TLS close_notify: the protocol above has its own goodbye.
func (s *tlsConn) Close() error { return s.plain.Close() }

// read reads ciphertext: blocking and within quota during the handshake, without blocking after
// setFD.
func (l *tlsBuffers) read(p []byte) (int, error) {
	if l.fd == 0 {
		if l.quota <= 0 {
			return 0, errors.New("it sent too much data before its handshake was complete")
		}
		n, err := l.plain.Read(p[:min(len(p), l.quota)])
		l.quota -= n
		return n, err
	}
	if len(l.in) == 0 {
		n, e := sysRecv(l.fd, l.readBuf)
		if err := failure(e); err != nil {
			return 0, err
		}
		if n == 0 && e == 0 {
			return 0, io.EOF
		}
		if n == 0 {
			return 0, wouldBlock{}
		}
		l.in = l.readBuf[:n]
	}
	n := copy(p, l.in)
	l.in = l.in[n:]
	return n, nil
}

// write writes ciphertext: directly during the handshake, to out after setFD.
func (l *tlsBuffers) write(p []byte) (int, error) {
	if l.fd == 0 {
		return l.plain.Write(p)
	}
	l.out = append(l.out, p...)
	return len(p), nil
}

// flush sends ciphertext until the socket is full.
func (l *tlsBuffers) flush() error {
	for l.sent < len(l.out) {
		n, e := sysSend(l.fd, l.out[l.sent:])
		if err := failure(e); err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		l.sent += n
	}
	l.out, l.sent = l.out[:0], 0
	return nil
}

// write implements conn.write. It first flushes what is encrypted already, and returns zero bytes while the
// socket does not take that. A record takes at most recordBytes of a and b.
func (s *tlsConn) write(a, b []byte) (int, error) {
	if err := s.flush(); err != nil || len(s.out) > 0 {
		return 0, err
	}
	if len(a)+len(b) == 0 {
		return 0, nil
	}
	p := b
	if len(a) > 0 {
		n := copy(s.scratch, a)
		n += copy(s.scratch[n:], b)
		p = s.scratch[:n]
	}
	n, err := s.Write(p[:min(len(p), recordBytes)])
	if err != nil {
		return n, err
	}
	return n, s.flush()
}

// read implements conn.read. Data that arrived before an error is returned without the error, which the next
// read returns again.
func (s *tlsConn) read(a, b []byte) (int, error) {
	total := 0
	for _, p := range [2][]byte{a, b} {
		for len(p) > 0 && total < maxSyscallBytes {
			n, err := s.Read(p)
			total += n
			p = p[n:]
			if err == nil {
				continue
			}
			// Data that arrived before an error is returned first.
			if _, ok := errors.AsType[wouldBlock](err); ok || total > 0 {
				return total, nil
			}
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = io.EOF
			}
			return 0, err
		}
	}
	return total, nil
}

// wouldBlock tells package tls that there is nothing to read yet. Because it is a temporary
// net.Error, the TLS session stays usable.
type wouldBlock struct{}

func (wouldBlock) Error() string   { return "nothing to read yet" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

var _ net.Error = wouldBlock{}

// tlsConnOf returns the TLS session of c, or nil.
func tlsConnOf(c net.Conn) *tlsConn {
	s, _ := c.(*tlsConn)
	return s
}

// requireTLS13 returns a copy of config that requires TLS 1.3 and both sides' certificates.
func requireTLS13(config *tls.Config) *tls.Config {
	c := config.Clone()
	c.MinVersion = tls.VersionTLS13
	c.ClientAuth = tls.RequireAndVerifyClientCert
	if c.ClientCAs == nil {
		c.ClientCAs = c.RootCAs
	}
	if c.ServerName == "" {
		c.ServerName = jobtls.ServerName
	}
	c.SessionTicketsDisabled = true
	c.DynamicRecordSizingDisabled = true
	return c
}
