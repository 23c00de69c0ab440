// Package netns simulates hosts by network namespaces that are connected by a bridge in another
// namespace. The namespaces are isolated from the machine's network. The package is for tests,
// works on Linux only, and needs root and the ip command (iproute2).
package netns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrUnavailable says that network namespaces cannot be made here.
var ErrUnavailable = errors.New("network namespaces are not available")

// A Network is a set of hosts and their switch. It is not safe for concurrent use. The caller of
// New closes it.
type Network struct {
	switchNS string
	hosts    []string
	v6       bool
}

const prefix = "tutti-test-"

// New makes the given number of hosts with IPv4 or IPv6 addresses. number distinguishes the
// networks of one process. The error matches ErrUnavailable if the system does not support network
// namespaces.
func New(number, hosts int, v6 bool) (*Network, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: they require root", ErrUnavailable)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, fmt.Errorf("%w: there is no ip command (iproute2)", ErrUnavailable)
	}
	deleteStale()
	id := fmt.Sprint(prefix, os.Getpid(), "-", number, "-")
	n := &Network{switchNS: id + "hub", v6: v6}
	if err := ip("netns", "add", n.switchNS); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	err := ipAll(
		[]string{"-n", n.switchNS, "link", "add", "switch", "type", "bridge"},
		[]string{"-n", n.switchNS, "link", "set", "switch", "addrgenmode", "none"},
		[]string{"-n", n.switchNS, "link", "set", "switch", "up"},
	)
	for h := 0; h < hosts && err == nil; h++ {
		err = n.add(id+strconv.Itoa(h), h)
	}
	if err == nil {
		err = ip("netns", "exec", n.switchNS, "true")
	}
	if err != nil && unsupported(err) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// unsupported reports whether a command failed because the system lacks or forbids a feature:
// bridges, veth pairs, IPv6 or mounts.
func unsupported(err error) bool {
	return slices.ContainsFunc([]string{"not supported", "not permitted", "Permission denied", "Unknown device type"},
		func(text string) bool { return strings.Contains(err.Error(), text) })
}

// add makes one host and connects it to the switch. If it fails after it has made the namespace,
// the host is in n.hosts, so that Close deletes it.
func (n *Network) add(host string, h int) error {
	if err := ip("netns", "add", host); err != nil {
		return err
	}
	n.hosts = append(n.hosts, host)
	port := n.port(h)
	// Without link-local addresses the host sends no unsolicited packets.
	mode := "none"
	addr := []string{"-n", host, "addr", "add", n.Addr(h) + "/24", "dev", "eth0"}
	if n.v6 {
		mode = "eui64"
		addr = []string{"-n", host, "addr", "add", n.Addr(h) + "/64", "dev", "eth0", "nodad"}
	}
	return ipAll(
		[]string{"-n", n.switchNS, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host},
		[]string{"-n", n.switchNS, "link", "set", port, "addrgenmode", "none"},
		[]string{"-n", host, "link", "set", "eth0", "addrgenmode", mode},
		[]string{"-n", n.switchNS, "link", "set", port, "master", "switch", "up"},
		[]string{"-n", host, "link", "set", "lo", "up"},
		[]string{"-n", host, "link", "set", "eth0", "up"},
		addr,
	)
}

// ip runs the ip command.
func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// ipAll runs ip commands until one fails.
func ipAll(commands ...[]string) error {
	for _, args := range commands {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

// port is the switch port of a host.
func (n *Network) port(host int) string { return "port" + strconv.Itoa(host) }

// Addr returns a host's address.
func (n *Network) Addr(host int) string {
	if n.v6 {
		return fmt.Sprintf("fd00:7474::%d", host+1)
	}
	return fmt.Sprintf("192.0.2.%d", host+1)
}

// Command returns a command to run on a host. Its process is the process of the command, not of ip.
func (n *Network) Command(ctx context.Context, host int, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", n.hosts[host], name}, args...)...)
}

// Disconnect unplugs a host from the switch. Neither side is notified.
func (n *Network) Disconnect(host int) error {
	return ip("-n", n.switchNS, "link", "set", n.port(host), "nomaster")
}

// Reconnect plugs a host in again.
func (n *Network) Reconnect(host int) error {
	return ip("-n", n.switchNS, "link", "set", n.port(host), "master", "switch")
}

// Isolate prevents hosts from reaching each other. They still reach all other hosts.
func (n *Network) Isolate(hosts ...int) error {
	for _, h := range hosts {
		if err := n.setBridgePort(h, "isolated", "on"); err != nil {
			return err
		}
	}
	return nil
}

// DropInbound drops all packets to a host. Packets from it still arrive.
func (n *Network) DropInbound(host int) error {
	// The switch forgets the host's address, does not learn it again, and does not flood unknown or
	// broadcast packets to the host.
	err := n.setBridgePort(host, "learning", "off", "flood", "off", "mcast_flood", "off", "bcast_flood", "off")
	if err != nil {
		return err
	}
	return n.setBridgePort(host, "fdb_flush")
}

func (n *Network) setBridgePort(host int, settings ...string) error {
	return ip(append([]string{"-n", n.switchNS, "link", "set", n.port(host), "type", "bridge_slave"}, settings...)...)
}

// Traffic returns the bytes that a host has sent and received, as counted by the switch.
func (n *Network) Traffic(host int) (sent, received uint64, err error) {
	out, err := exec.Command("ip", "-n", n.switchNS, "-s", "-j", "link", "show", n.port(host)).Output()
	if err != nil {
		return 0, 0, err
	}
	type count struct{ Bytes uint64 }
	var links []struct{ Stats64 struct{ RX, TX count } }
	if err := json.Unmarshal(out, &links); err != nil || len(links) != 1 {
		return 0, 0, fmt.Errorf("cannot parse the output of ip: %w: %.80q", err, out)
	}
	return links[0].Stats64.RX.Bytes, links[0].Stats64.TX.Bytes, nil
}

// Close deletes the namespaces. A process in a namespace keeps it until it exits.
func (n *Network) Close() error {
	var errs []error
	for _, h := range append(n.hosts, n.switchNS) {
		errs = append(errs, ip("netns", "del", h))
	}
	n.hosts = nil
	return errors.Join(errs...)
}

// deleteStale deletes the namespaces of processes that have exited without Close. It ignores
// errors.
func deleteStale() {
	list, err := os.ReadDir("/run/netns")
	if err != nil {
		return
	}
	for _, f := range list {
		rest, ours := strings.CutPrefix(f.Name(), prefix)
		text, _, _ := strings.Cut(rest, "-")
		if pid, err := strconv.Atoi(text); ours && err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			_ = exec.CommandContext(ctx, "ip", "netns", "del", f.Name()).Run()
			cancel()
		}
	}
}
