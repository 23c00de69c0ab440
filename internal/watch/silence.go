package watch

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// defaultSilence is how long a rank's host may not answer before the rank is
// lost.
const defaultSilence = 30 * time.Second

// notice has the kernel end a connection whose other side has not answered for
// so long. A living host answers even if its ranks are stopped or busy: so it
// costs them nothing, and a rank is never lost for being slow.
func notice(c net.Conn, silence time.Duration) error {
	tc, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	if silence <= 0 {
		silence = defaultSilence
	}
	// That is for a connection on which nothing is sent.
	keep := net.KeepAliveConfig{Enable: true, Idle: silence / 3, Interval: silence / 6, Count: 4}
	return errors.Join(tc.SetKeepAliveConfig(keep), limitUnanswered(tc, silence))
}

// ended says why a control connection has.
func ended(err error) string {
	for _, e := range []error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, e) {
			return "its host does not answer"
		}
	}
	return "its control connection has ended"
}
