//go:build unix && !linux

package tcp

import (
	"errors"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errno converts an error of package unix. It returns no bytes with an error.
func errno(n int, err error) (int, syscall.Errno) {
	var e syscall.Errno
	if errors.As(err, &e) {
		return 0, e
	}
	return max(n, 0), 0
}

func sysSend(fd int, p []byte) (int, syscall.Errno) { return errno(unix.Write(fd, p)) }

func sysRecv(fd int, p []byte) (int, syscall.Errno) { return errno(unix.Read(fd, p)) }

// A vector moves two slices, one after the other.
type vector struct{}

func (*vector) send(fd int, a, b []byte) (int, syscall.Errno) { return both(sysSend, fd, a, b) }

func (*vector) recv(fd int, a, b []byte) (int, syscall.Errno) { return both(sysRecv, fd, a, b) }

// both moves a and then b. It moves b only after all of a.
func both(move func(int, []byte) (int, syscall.Errno), fd int, a, b []byte) (int, syscall.Errno) {
	n, e := move(fd, a)
	if e != 0 || n < len(a) {
		return n, e
	}
	// An error of the second call is returned by the next call.
	if more, e := move(fd, b); e == 0 {
		n += more
	}
	return n, 0
}

func sysYield() { runtime.Gosched() }

func unsentBytes(int) int { return 0 }

func setOptions(fd int, _ time.Duration) error {
	return errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
	)
}

func hostSilent(int, time.Duration) bool { return false }

// A wakeup ends a poll(2) that includes its descriptor.
type wakeup struct{ fd, in int }

func newWakeup() (*wakeup, error) {
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		return nil, err
	}
	for _, fd := range p {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, errors.Join(err, unix.Close(p[0]), unix.Close(p[1]))
		}
	}
	return &wakeup{fd: p[0], in: p[1]}, nil
}

func (b *wakeup) signal() { _, _ = unix.Write(b.in, []byte{1}) }

func (b *wakeup) reset() {
	var n [64]byte
	_, _ = unix.Read(b.fd, n[:])
}

func (b *wakeup) close() {
	_ = unix.Close(b.fd)
	_ = unix.Close(b.in)
}
