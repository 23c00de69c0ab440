package proctest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

// FreeAddr is an address that nobody listens on. No other test gets it before this
// one is over, in whatever process, and no connection, or listener that takes any
// port, has it meanwhile, where the system has ports that it does not give to these.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	for range 1000 {
		// Whoever wants the address wants the same port of UDP first, and keeps that.
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

// seldomPort is a port that nobody gets who asks for any; zero, and so any, where
// there is none that is not privileged.
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
