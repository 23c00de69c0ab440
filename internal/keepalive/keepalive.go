// Package silence has connections end whose other side's host is gone.
package keepalive

import (
	"errors"
	"net"
	"time"
)

// Default is how long a host may not answer before its ranks are lost.
const DefaultSilence = 30 * time.Second

// Longest is the longest silence that the kernel can bound: TCP_USER_TIMEOUT is
// a count of milliseconds in 32 bits with a sign, 24.8 days at most.
const MaxSilence = 24 * 24 * time.Hour

// What the kernel accepts for keep-alive (Linux: MAX_TCP_KEEPIDLE,
// MAX_TCP_KEEPINTVL and MAX_TCP_KEEPCNT).
const (
	maxInterval = 32767 * time.Second // for TCP_KEEPIDLE and TCP_KEEPINTVL
	maxProbes   = 127                 // for TCP_KEEPCNT
)

// Limit is the silence that connections really get for one that was asked for:
// zero or less means Default, and more than Longest means Longest.
func Clamp(silence time.Duration) time.Duration {
	if silence <= 0 {
		return DefaultSilence
	}
	return min(silence, MaxSilence)
}

// A KeepAlive is when the kernel probes a connection on which nothing is sent:
// first after Idle, then every Interval. After Count probes without an answer it
// ends the connection. Idle and Interval are whole seconds, because the kernel
// counts in seconds; every value is one that the kernel accepts.
type KeepAlive struct {
	Idle, Interval time.Duration
	Count          int
}

// NewKeepAlive divides a silence: a third of it passes before the first probe,
// the rest between four of them, or more where the kernel does not wait that long
// between two.
func NewKeepAlive(silence time.Duration) KeepAlive {
	silence = Clamp(silence)
	k := KeepAlive{Idle: wholeSeconds(silence / 3), Interval: wholeSeconds(silence / 6), Count: 4}
	if k.Interval == maxInterval || k.Idle == maxInterval {
		k.Count = min(int((silence-k.Idle+k.Interval-1)/k.Interval), maxProbes)
	}
	return k
}

// wholeSeconds rounds up to seconds, within what the kernel accepts.
func wholeSeconds(d time.Duration) time.Duration {
	return min(max((d+time.Second-1)/time.Second, 1)*time.Second, maxInterval)
}

// unanswered is how long what was sent may go unacknowledged. Something may be
// sent only after a while, and the kernel looks at its clock now and then, so it is
// less than the silence. The kernel counts in milliseconds, and takes zero for its
// own default of many minutes.
func userTimeout(silence time.Duration) time.Duration {
	silence = Clamp(silence)
	return max(silence-silence/6, time.Millisecond)
}

// Bound has the kernel end a connection whose other side has not answered for
// so long; see Limit. A living host answers even if its ranks are stopped or busy:
// so it costs them nothing, and a rank is never lost for being slow. It does
// nothing to connections other than TCP's.
func Apply(c net.Conn, silence time.Duration) error {
	tc, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	k := NewKeepAlive(silence)
	keep := net.KeepAliveConfig{Enable: true, Idle: k.Idle, Interval: k.Interval, Count: k.Count}
	return errors.Join(tc.SetKeepAliveConfig(keep), setUserTimeout(tc, userTimeout(silence)))
}
