//go:build !linux

package keepalive

import (
	"net"
	"time"
)

// limitUnanswered does nothing here: the kernel's own patience decides.
func setUserTimeout(*net.TCPConn, time.Duration) error { return nil }
