package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// A Tap records the packets on a network's switch. It is not safe for concurrent use. The caller of
// Network.Tap closes it, before the network.
type Tap struct{ fd int }

// tapBytes is the size of the kernel's buffer for unread packets.
const tapBytes = 64 << 20

// Tap begins to record packets. The error matches ErrUnavailable if the system does not allow it.
func (n *Network) Tap() (*Tap, error) {
	type opened struct {
		fd  int
		err error
	}
	done := make(chan opened)
	go func() {
		// The thread changes its namespace and must not run other goroutines. It exits with this
		// goroutine.
		runtime.LockOSThread()
		fd, err := openTap(n.switchNS)
		done <- opened{fd, err}
	}()
	o := <-done
	if o.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, o.err)
	}
	return &Tap{o.fd}, nil
}

// openTap moves the calling thread to a namespace and opens a packet socket there.
func openTap(namespace string) (int, error) {
	file, err := os.Open("/run/netns/" + namespace)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return 0, err
	}
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8 // in network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return 0, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, tapBytes); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// Read returns the unread packets, one after the other, each at least once. It fails if the
// kernel's buffer has overflowed.
func (t *Tap) Read() ([]byte, error) {
	var seen []byte
	for buf := make([]byte, 128<<10); ; {
		n, err := unix.Read(t.fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			stats, err := unix.GetsockoptTpacketStats(t.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
			if err == nil && stats.Drops > 0 {
				err = fmt.Errorf("%d packets were dropped because the buffer was full", stats.Drops)
			}
			return seen, err
		case err != nil:
			return nil, err
		default:
			seen = append(seen, buf[:n]...)
		}
	}
}

// Close ends the recording.
func (t *Tap) Close() error { return unix.Close(t.fd) }
