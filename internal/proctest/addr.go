package proctest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

// The ports of FreeAddr, where the system lets them alone.
const (
	firstPort = 20_000
	lastPort  = 32_000
)

// FreeAddr is an address that nobody listens on. It has a port that the system
// does not give to those who ask for any, or connect: another test could have it
// by the time it is used.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", somePort())); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	tb.Fatal(err)
	return ""
}

// somePort draws a port, zero where all are the system's to give.
func somePort() int {
	var low int
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(text), &low)
	}
	if err == nil && low <= lastPort {
		return 0
	}
	return firstPort + rand.IntN(lastPort-firstPort)
}
