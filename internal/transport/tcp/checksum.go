package tcp

import (
	"net/netip"

	"github.com/tutti-go/tutti/internal/crc32c"
	"github.com/tutti-go/tutti/internal/transport"
	"golang.org/x/sys/unix"
)

// hasSum marks a checksum as present, so that a checksum of zero differs from none.
const hasSum = 1 << 32

// checksum returns the checksum of a head, which may be nil, and a body. It is never zero.
func checksum(head *transport.Head, body []byte) uint64 {
	var sum uint32
	if head != nil {
		sum = crc32c.Update(0, head[:])
	}
	return hasSum | uint64(crc32c.Update(sum, body))
}

// damaged returns the error for a wrong checksum.
func (l *link) damaged() error {
	return &transport.CorruptError{Peer: l.peer, Addr: l.remote()}
}

// remote is the address of the other side.
func (c *conn) remote() string {
	at, _ := unix.Getpeername(c.fd)
	switch a := at.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)).String()
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)).String()
	}
	return "an unknown address"
}
