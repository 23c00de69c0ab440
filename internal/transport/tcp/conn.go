package tcp

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxSyscallBytes bounds what one system call moves.
const maxSyscallBytes = 512 << 10

// A conn is a connected, non-blocking socket. One goroutine at a time uses it.
type conn struct {
	fd        int
	tls       *tlsConn // nil: not encrypted
	vec       vector
	deadAfter time.Duration // how long the peer's kernel may be silent
}

// detachFD takes the descriptor out of a connection of package net after its handshake, and closes that
// connection, also after an error. dead is Options.DeadAfter.
func detachFD(c net.Conn, dead time.Duration) (*conn, error) {
	defer c.Close()
	s := tlsConnOf(c)
	if s != nil {
		c = s.plain
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return nil, errors.New("the connection is not a socket")
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	var dupErr error
	if err := raw.Control(func(old uintptr) {
		fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return nil, err
	}
	if dupErr != nil {
		return nil, dupErr
	}
	if err := errors.Join(unix.SetNonblock(fd, true), setOptions(fd, dead)); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	if s != nil {
		s.setFD(fd)
	}
	return &conn{fd: fd, tls: s, deadAfter: dead}, nil
}

// write writes what the socket takes of a and then b. Zero bytes means that it would block. One goroutine at
// a time may write: the holder of Mesh.exchangeMu on the lane of frames, of the messenger's mu on the lane of
// messages.
func (c *conn) write(a, b []byte) (int, error) {
	if c.tls != nil {
		return c.tls.write(a, b)
	}
	var n int
	var e syscall.Errno
	switch {
	case len(b) == 0:
		n, e = sysSend(c.fd, a)
	case len(a) == 0:
		n, e = sysSend(c.fd, b[:min(len(b), maxSyscallBytes)])
	default:
		n, e = c.vec.send(c.fd, a, b[:min(len(b), maxSyscallBytes)])
	}
	return n, failure(e)
}

// read reads into a and then b. Zero bytes means that it would block; io.EOF that the peer has closed. The
// locks are those of write.
func (c *conn) read(a, b []byte) (int, error) {
	if c.tls != nil {
		return c.tls.read(a, b)
	}
	var n int
	var e syscall.Errno
	switch {
	case len(b) == 0:
		n, e = sysRecv(c.fd, a)
	case len(a) == 0:
		n, e = sysRecv(c.fd, b[:min(len(b), maxSyscallBytes)])
	default:
		n, e = c.vec.recv(c.fd, a, b[:min(len(b), maxSyscallBytes)])
	}
	if n == 0 && e == 0 {
		return 0, io.EOF
	}
	return n, failure(e)
}

// flushed reports whether the kernel has all data that write has taken.
func (c *conn) flushed() bool { return c.tls == nil || len(c.tls.out) == 0 }

func (c *conn) close() { _ = unix.Close(c.fd) }

// failure returns the error for e, nil if the call would block or was interrupted.
func failure(e syscall.Errno) error {
	if e == 0 || e == unix.EAGAIN || e == unix.EINTR {
		return nil
	}
	return e
}
