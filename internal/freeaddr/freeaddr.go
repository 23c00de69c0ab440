// Package freeaddr finds addresses of the loopback interface for jobs and tests.
package freeaddr

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
)

// A Reservation is an address on which nothing listened when it was made. Until Release, no other
// Reservation on this machine has the same address.
type Reservation struct {
	Addr string
	lock net.PacketConn // the UDP port with the same number
}

// Reserve returns a loopback address for a listener. If the system's range of ephemeral ports
// excludes it, no connection or listener on port zero gets it either.
func Reserve() (*Reservation, error) {
	// A process that is being started must not inherit the listener.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	for range 1000 {
		lock, err := net.ListenPacket("udp", fmt.Sprint("127.0.0.1:", seldomPort()))
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", lock.LocalAddr().String())
		if err != nil {
			lock.Close()
			continue
		}
		l.Close()
		return &Reservation{Addr: l.Addr().String(), lock: lock}, nil
	}
	return nil, errors.New("no free port was found on the loopback interface")
}

// Release ends the Reservation.
func (r *Reservation) Release() { _ = r.lock.Close() }

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
