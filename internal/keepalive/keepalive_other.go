//go:build !linux

package keepalive

import (
	"net"
	"time"
)

// setUserTimeout does nothing: the kernel's own timeout applies.
func setUserTimeout(*net.TCPConn, time.Duration) error { return nil }
