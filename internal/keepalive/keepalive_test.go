package keepalive

import (
	"math"
	"net"
	"testing"
	"time"
)

// silences are values that users may set, from the shortest to the longest.
var silences = []time.Duration{
	math.MinInt64, -time.Second, 0, 1, time.Microsecond, time.Millisecond, 700 * time.Millisecond, time.Second, 3 * time.Second,
	DefaultHostTimeout, time.Hour, 27 * time.Hour, 28 * time.Hour, 48 * time.Hour, 20 * 24 * time.Hour, MaxHostTimeout, 30 * 24 * time.Hour,
	1000 * time.Hour * 24, math.MaxInt64,
}

// TestApplyAnyTimeout checks that the kernel accepts every host timeout.
func TestApplyAnyTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, d := range silences {
		if err := Apply(c, d); err != nil {
			t.Errorf("%v: %v", d, err)
		}
	}
}

// TestNewKeepAlive checks that probes end a connection after the requested time, and not before.
func TestNewKeepAlive(t *testing.T) {
	for _, d := range silences {
		k, want := NewKeepAlive(d), Clamp(d)
		if k.Idle < time.Second || k.Interval < time.Second || k.Idle > maxInterval || k.Interval > maxInterval || k.Count < 4 || k.Count > maxProbes {
			t.Errorf("%v: %+v is not what the kernel accepts", d, k)
		}
		if all := k.Idle + time.Duration(k.Count)*k.Interval; all < want || all > want+want/6+6*time.Second {
			t.Errorf("%v: %+v ends a connection after %v, want %v", d, k, all, want)
		}
		if u := userTimeout(d); u < time.Millisecond || u/time.Millisecond > math.MaxInt32 {
			t.Errorf("%v: TCP_USER_TIMEOUT of %v", d, u)
		}
	}
}
