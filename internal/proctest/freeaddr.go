package proctest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

// FreeAddr returns a loopback address on which nothing listens. No other FreeAddr on this machine
// returns it before the test is complete. If the system's range of ephemeral ports excludes it, no
// connection or listener on port zero gets it either.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	for range 1000 {
		// The UDP port with the same number is the lock: every FreeAddr binds it first and holds it
		// until its test is complete.
		mine, err := net.ListenPacket("udp", fmt.Sprint("127.0.0.1:", seldomPort()))
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", mine.LocalAddr().String())
		if err != nil {
			mine.Close()
			continue
		}
		l.Close()
		tb.Cleanup(func() { mine.Close() })
		return l.Addr().String()
	}
	tb.Fatal("there is no free address")
	return ""
}

// seldomPort returns a port outside the range of ephemeral ports, or zero if that range leaves no
// unprivileged ports.
func seldomPort() int {
	const privileged, usual = 1024, 32768
	first := usual
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(text), &first)
	}
	if first < 8*privileged {
		return 0
	}
	return first - 1 - rand.IntN(first/2)
}
