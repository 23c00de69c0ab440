package tcp

import (
	"net/netip"

	"github.com/tutti-go/tutti/internal/crc32c"
	"github.com/tutti-go/tutti/internal/transport"
	"golang.org/x/sys/unix"
)

// hasSum tells a checksum of zero from none.
const hasSum = 1 << 32

// checksum is that of a head, if there is one, and a body. It is never zero.
func checksum(head *transport.Head, body []byte) uint64 {
	var sum uint32
	if head != nil {
		sum = crc32c.Update(0, head[:])
	}
	return hasSum | uint64(crc32c.Update(sum, body))
}

// damaged is the error for what has another checksum than it was sent with.
func (l *link) damaged() error {
	return &transport.CorruptError{Peer: l.peer, Addr: l.remote()}
}

// remote is where the other side of a connection is.
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
