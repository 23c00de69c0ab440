package tcp

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// An addr is one address of a listener. id identifies the listener, because an address such as
// 127.0.0.1 or that of a container bridge leads to a different listener on every host. A zero id
// matches any listener.
type addr struct {
	hostPort string
	id       [8]byte
}

func (a addr) String() string { return a.hostPort + "/" + hex.EncodeToString(a.id[:]) }

// parseAddr parses a host:port, optionally followed by a slash and the id. It resolves no names. The error is
// the syntax error.
func parseAddr(s string) (addr, error) {
	hostPort, id, found := strings.Cut(s, "/")
	a := addr{hostPort: hostPort}
	if _, _, err := net.SplitHostPort(hostPort); err != nil {
		return a, err
	}
	if found {
		b, err := hex.DecodeString(id)
		if err != nil || len(b) != len(a.id) {
			return a, fmt.Errorf("the address %q does not end in a listener id of 16 hexadecimal digits", s)
		}
		copy(a.id[:], b)
	}
	return a, nil
}

// offeredAddrs returns the addresses at which other ranks may reach a listener bound to at, the most useful
// first. choice is Options.Interface. It returns an error if the chosen interfaces have no such address.
func offeredAddrs(at netip.AddrPort, choice string) ([]string, error) {
	port := strconv.Itoa(int(at.Port()))
	if !at.Addr().IsUnspecified() && choice == "" {
		return []string{net.JoinHostPort(at.Addr().Unmap().String(), port)}, nil
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("tcp: network interfaces: %w", err)
	}
	var ips []netip.Addr
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || !interfaceChosen(choice, i.Name) {
			continue
		}
		list, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("tcp: addresses of %s: %w", i.Name, err)
		}
		for _, a := range list {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			ip, ok := netip.AddrFromSlice(n.IP)
			ip = ip.Unmap()
			// A link-local address is useless without the other host's zone.
			if ok && !ip.IsLinkLocalUnicast() && reaches(at.Addr(), ip) {
				ips = append(ips, ip)
			}
		}
	}
	if len(ips) == 0 {
		return nil, fmt.Errorf("tcp: no address to offer on interface %q (TUTTI_SOCKET_IFNAME) for a listener on %v; tutti doctor lists the interfaces", choice, at)
	}
	slices.SortStableFunc(ips, func(a, b netip.Addr) int { return addrClass(a) - addrClass(b) })
	var addrs []string
	for _, ip := range ips {
		addrs = append(addrs, net.JoinHostPort(ip.String(), port))
	}
	return addrs, nil
}

// reaches reports whether a socket bound to at accepts connections to ip.
func reaches(at, ip netip.Addr) bool {
	return at == netip.IPv6Unspecified() || at == ip || (at.IsUnspecified() && ip.Is4())
}

// addrClass orders addresses: IPv4, IPv6, loopback.
func addrClass(ip netip.Addr) int {
	switch {
	case ip.IsLoopback():
		return 2
	case ip.Is4():
		return 0
	default:
		return 1
	}
}

// interfaceChosen reports whether Options.Interface selects an interface.
func interfaceChosen(choice, name string) bool {
	if choice == "" {
		return true
	}
	names, except := strings.CutPrefix(choice, "^")
	return slices.Contains(strings.Split(names, ","), name) != except
}

// sameHostRanks returns the ranks, rank itself included, whose first address has the same host part as rank's
// first address. It compares texts, so the result is a guess: a loopback address that ranks of different hosts
// offer counts as one host, and two addresses of one machine count as two. Ranks without a valid first address
// have the host part "" and count as one host. See oversubscribed.
func sameHostRanks(peers [][]string, rank int) (list []int) {
	host := func(r int) string {
		if len(peers[r]) == 0 {
			return ""
		}
		a, err := parseAddr(peers[r][0])
		if err != nil {
			return ""
		}
		h, _, _ := net.SplitHostPort(a.hostPort)
		return h
	}
	for r := range peers {
		if host(r) == host(rank) {
			list = append(list, r)
		}
	}
	return list
}
