// Package keepalive makes the kernel end TCP connections whose peer's host does not answer.
package keepalive

import (
	"errors"
	"net"
	"time"
)

// DefaultHostTimeout is the time without an answer from a host after which its ranks are lost.
const DefaultHostTimeout = 30 * time.Second

// MaxHostTimeout is the longest time that the kernel can bound: TCP_USER_TIMEOUT is a signed 32-bit
// count of milliseconds, 24.8 days at most.
const MaxHostTimeout = 24 * 24 * time.Hour

// The largest values that the kernel accepts for keep-alive (Linux: MAX_TCP_KEEPIDLE,
// MAX_TCP_KEEPINTVL and MAX_TCP_KEEPCNT).
const (
	maxInterval = 32767 * time.Second // for TCP_KEEPIDLE and TCP_KEEPINTVL
	maxProbes   = 127                 // for TCP_KEEPCNT
)

// Clamp returns the host timeout that applies to a connection: DefaultHostTimeout for zero or less, and
// at most MaxHostTimeout.
func Clamp(hostTimeout time.Duration) time.Duration {
	if hostTimeout <= 0 {
		return DefaultHostTimeout
	}
	return min(hostTimeout, MaxHostTimeout)
}

// A KeepAlive holds the times at which the kernel probes an idle connection: first after Idle, then
// every Interval. After Count probes without an answer it ends the connection. Idle and
// Interval are whole seconds, the kernel's unit. The kernel accepts all values of NewKeepAlive.
type KeepAlive struct {
	Idle, Interval time.Duration
	Count          int
}

// NewKeepAlive divides a host timeout: a third passes before the first probe, and the rest is divided
// between four probes. There are more probes if the kernel limits the interval.
func NewKeepAlive(hostTimeout time.Duration) KeepAlive {
	hostTimeout = Clamp(hostTimeout)
	k := KeepAlive{Idle: wholeSeconds(hostTimeout / 3), Interval: wholeSeconds(hostTimeout / 6), Count: 4}
	if k.Interval == maxInterval || k.Idle == maxInterval {
		k.Count = min(int((hostTimeout-k.Idle+k.Interval-1)/k.Interval), maxProbes)
	}
	return k
}

// wholeSeconds rounds d up to seconds, within the kernel's limits.
func wholeSeconds(d time.Duration) time.Duration {
	return min(max((d+time.Second-1)/time.Second, 1)*time.Second, maxInterval)
}

// userTimeout is the TCP_USER_TIMEOUT for a host timeout. It is shorter than that, because data
// may be sent only later and the kernel checks its timers at intervals. It is at least a
// millisecond: zero would mean the kernel's default of many minutes.
func userTimeout(hostTimeout time.Duration) time.Duration {
	hostTimeout = Clamp(hostTimeout)
	return max(hostTimeout-hostTimeout/6, time.Millisecond)
}

// Apply makes the kernel end a TCP connection whose peer's host does not answer for
// hostTimeout; see Clamp. A running host answers even if its processes are stopped or busy, so a slow
// rank is never lost. Apply does nothing for other connections.
func Apply(c net.Conn, hostTimeout time.Duration) error {
	tc, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	k := NewKeepAlive(hostTimeout)
	keep := net.KeepAliveConfig{Enable: true, Idle: k.Idle, Interval: k.Interval, Count: k.Count}
	return errors.Join(tc.SetKeepAliveConfig(keep), setUserTimeout(tc, userTimeout(hostTimeout)))
}
