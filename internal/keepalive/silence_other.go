//go:build !linux

package keepalive

import (
	"net"
	"time"
)

// limitUnanswered does nothing here: the kernel's own patience decides.
func limitUnanswered(*net.TCPConn, time.Duration) error { return nil }
