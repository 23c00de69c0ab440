// Package silence has connections end whose other side's host is gone.
package silence

import (
	"errors"
	"net"
	"time"
)

// Default is how long a host may not answer before its ranks are lost.
const Default = 30 * time.Second

// Bound has the kernel end a connection whose other side has not answered for
// so long. A living host answers even if its ranks are stopped or busy: so it
// costs them nothing, and a rank is never lost for being slow. Zero or less means
// Default. It does nothing to connections other than TCP's.
func Bound(c net.Conn, silence time.Duration) error {
	tc, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	if silence <= 0 {
		silence = Default
	}
	// That is for a connection on which nothing is sent.
	keep := net.KeepAliveConfig{Enable: true, Idle: silence / 3, Interval: silence / 6, Count: 4}
	// Something may be sent only after a while, and the kernel looks at its clock
	// now and then.
	return errors.Join(tc.SetKeepAliveConfig(keep), limitUnanswered(tc, silence-silence/6))
}
