package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// A Tap has what goes over a network's switch. It is for one goroutine at a time.
// Whoever made it closes it, before the network.
type Tap struct{ fd int }

// tapBytes is how much the kernel keeps until it is asked for.
const tapBytes = 64 << 20

// Tap begins to keep what hosts send each other. Its error matches ErrUnavailable
// where that is not allowed.
func (n *Network) Tap() (*Tap, error) {
	type opened struct {
		fd  int
		err error
	}
	done := make(chan opened)
	go func() {
		// The thread is in another namespace from now on, and ends with the
		// goroutine.
		runtime.LockOSThread()
		fd, err := openTap(n.hub)
		done <- opened{fd, err}
	}()
	o := <-done
	if o.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, o.err)
	}
	return &Tap{o.fd}, nil
}

func openTap(namespace string) (int, error) {
	place, err := os.Open("/run/netns/" + namespace)
	if err != nil {
		return 0, err
	}
	defer place.Close()
	if err := unix.Setns(int(place.Fd()), unix.CLONE_NEWNET); err != nil {
		return 0, err
	}
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8 // in the network's order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return 0, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, tapBytes); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// Read returns what has been sent so far and was not read before, packet after
// packet, each at least once. It fails if that was more than is kept.
func (t *Tap) Read() ([]byte, error) {
	var seen []byte
	for buf := make([]byte, 128<<10); ; {
		n, err := unix.Read(t.fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			stats, err := unix.GetsockoptTpacketStats(t.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
			if err == nil && stats.Drops > 0 {
				err = fmt.Errorf("%d packets were not kept", stats.Drops)
			}
			return seen, err
		case err != nil:
			return nil, err
		default:
			seen = append(seen, buf[:n]...)
		}
	}
}

// Close ends it.
func (t *Tap) Close() error { return unix.Close(t.fd) }
