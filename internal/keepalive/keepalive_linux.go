package keepalive

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// limitUnanswered bounds how long what was sent may go unacknowledged; left
// alone, the kernel tries for a quarter of an hour.
func setUserTimeout(c *net.TCPConn, limit time.Duration) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit/time.Millisecond))
	})
	if err != nil {
		return err
	}
	return failed
}
