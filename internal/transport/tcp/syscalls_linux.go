package tcp

import (
	"syscall"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/keepalive"
	"golang.org/x/sys/unix"
)

// The data path uses raw system calls, which do not notify Go's scheduler: they do not block, and
// the notification costs as much as a short call. The garbage collector cannot stop a thread inside
// such a call, so maxSyscallBytes bounds what one call moves.

// sysSend writes what the socket takes of p, or returns EAGAIN.
func sysSend(fd int, p []byte) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// sysRecv reads into p without blocking. Zero bytes without an error is the end of the stream.
func sysRecv(fd int, p []byte) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// A vector holds the arguments of a call that moves two slices at once. It must be on the heap.
type vector struct {
	iov [2]unix.Iovec
	hdr unix.Msghdr
}

// set makes v refer to a and b.
func (v *vector) set(a, b []byte) {
	v.iov[0].Base = unsafe.SliceData(a)
	v.iov[0].SetLen(len(a))
	v.iov[1].Base = unsafe.SliceData(b)
	v.iov[1].SetLen(len(b))
	v.hdr.Iov = &v.iov[0]
	v.hdr.SetIovlen(2)
}

// send sends a and then b like sysSend.
func (v *vector) send(fd int, a, b []byte) (int, syscall.Errno) {
	v.set(a, b)
	n, _, e := syscall.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&v.hdr)),
		unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	v.iov = [2]unix.Iovec{}
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// recv receives into a and then b like sysRecv.
func (v *vector) recv(fd int, a, b []byte) (int, syscall.Errno) {
	v.set(a, b)
	n, _, e := syscall.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&v.hdr)), unix.MSG_DONTWAIT)
	v.iov = [2]unix.Iovec{}
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// sysYield yields the CPU to other threads.
func sysYield() { _, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// unsentBytes returns the bytes that the peer's kernel has not acknowledged.
func unsentBytes(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

// setOptions sets the socket options. It does not set TCP_USER_TIMEOUT, which would also end the
// connection to a rank that computes for longer while its buffers are full; see hostSilent.
func setOptions(fd int, dead time.Duration) error {
	keep := keepalive.NewKeepAlive(dead)
	for _, o := range []struct{ level, name, value int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keep.Idle / time.Second)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keep.Interval / time.Second)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keep.Count},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return err
		}
	}
	return nil
}

// hostSilent reports whether the peer's kernel has not acknowledged data for dead. A running kernel
// acknowledges at once, whatever its processes do. Keep-alive does not help here, because it does
// not run while data is unacknowledged.
func hostSilent(fd int, dead time.Duration) bool {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && info.Unacked > 0 && info.Retransmits > 0 && time.Duration(info.Last_ack_recv)*time.Millisecond > dead
}

// A wakeup ends a poll(2) that includes its descriptor.
type wakeup struct{ fd int }

func newWakeup() (*wakeup, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &wakeup{fd}, nil
}

func (b *wakeup) signal() {
	one := [8]byte{1}
	_, _ = unix.Write(b.fd, one[:])
}

func (b *wakeup) reset() {
	var n [8]byte
	_, _ = unix.Read(b.fd, n[:])
}

func (b *wakeup) close() { _ = unix.Close(b.fd) }
