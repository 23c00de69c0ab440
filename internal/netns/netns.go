// Package netns makes hosts that have nothing in common but a switch: network
// namespaces, linked by a bridge in one more. Nothing of it is seen outside. It
// is for tests and drills, needs root and the ip command (iproute2), and works
// on Linux alone.
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

// ErrUnavailable says that no namespaces can be made here.
var ErrUnavailable = errors.New("no network namespaces can be made here")

// A Network is some hosts and their switch. It is for one goroutine at a time.
// Whoever made it closes it.
type Network struct {
	hub   string
	hosts []string
	v6    bool
}

const prefix = "tutti-test-"

// New makes so many hosts, with addresses of IPv4 or IPv6. Its error matches
// ErrUnavailable where that cannot be done at all. The number tells networks of
// one process apart.
func New(number, hosts int, v6 bool) (*Network, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: only root can", ErrUnavailable)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, fmt.Errorf("%w: there is no ip command (iproute2)", ErrUnavailable)
	}
	deleteStale()
	id := fmt.Sprint(prefix, os.Getpid(), "-", number, "-")
	n := &Network{hub: id + "hub", v6: v6}
	if err := ip("netns", "add", n.hub); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	err := ipAll(
		[]string{"-n", n.hub, "link", "add", "switch", "type", "bridge"},
		[]string{"-n", n.hub, "link", "set", "switch", "addrgenmode", "none"},
		[]string{"-n", n.hub, "link", "set", "switch", "up"},
	)
	for h := 0; h < hosts && err == nil; h++ {
		err = n.add(id+strconv.Itoa(h), h)
	}
	if err == nil {
		err = ip("netns", "exec", n.hub, "true")
	}
	if err != nil && unsupported(err) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// lacking reports whether a command has failed because of what the system does
// not have, or does not allow: bridges, pairs of interfaces, IPv6, mounts.
func unsupported(err error) bool {
	return slices.ContainsFunc([]string{"not supported", "not permitted", "Permission denied", "Unknown device type"},
		func(text string) bool { return strings.Contains(err.Error(), text) })
}

// add makes one host.
func (n *Network) add(host string, h int) error {
	if err := ip("netns", "add", host); err != nil {
		return err
	}
	n.hosts = append(n.hosts, host)
	port := n.port(h)
	// Without link-local addresses nobody sends anything that was not asked for.
	mode := "none"
	addr := []string{"-n", host, "addr", "add", n.Addr(h) + "/24", "dev", "eth0"}
	if n.v6 {
		mode = "eui64"
		addr = []string{"-n", host, "addr", "add", n.Addr(h) + "/64", "dev", "eth0", "nodad"}
	}
	return ipAll(
		[]string{"-n", n.hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host},
		[]string{"-n", n.hub, "link", "set", port, "addrgenmode", "none"},
		[]string{"-n", host, "link", "set", "eth0", "addrgenmode", mode},
		[]string{"-n", n.hub, "link", "set", port, "master", "switch", "up"},
		[]string{"-n", host, "link", "set", "lo", "up"},
		[]string{"-n", host, "link", "set", "eth0", "up"},
		addr,
	)
}

// ip runs the command of that name.
func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func ipAll(commands ...[]string) error {
	for _, args := range commands {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

// port is where a host is plugged in.
func (n *Network) port(host int) string { return "port" + strconv.Itoa(host) }

// Addr is a host's address.
func (n *Network) Addr(host int) string {
	if n.v6 {
		return fmt.Sprintf("fd00:7474::%d", host+1)
	}
	return fmt.Sprintf("192.0.2.%d", host+1)
}

// Command is a command to be started on a host; its process is the command's
// own.
func (n *Network) Command(ctx context.Context, host int, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", n.hosts[host], name}, args...)...)
}

// Cut unplugs a host. Neither side is told.
func (n *Network) Disconnect(host int) error {
	return ip("-n", n.hub, "link", "set", n.port(host), "nomaster")
}

// Plug plugs a host in again.
func (n *Network) Reconnect(host int) error {
	return ip("-n", n.hub, "link", "set", n.port(host), "master", "switch")
}

// Isolate keeps hosts from reaching each other. They reach all others.
func (n *Network) Isolate(hosts ...int) error {
	for _, h := range hosts {
		if err := n.setBridgePort(h, "isolated", "on"); err != nil {
			return err
		}
	}
	return nil
}

// Deafen lets nothing reach a host any more. What it sends still arrives.
func (n *Network) DropInbound(host int) error {
	// The switch forgets where the host is and does not learn it again, and does
	// not send there what is meant for an unknown place, or for all.
	err := n.setBridgePort(host, "learning", "off", "flood", "off", "mcast_flood", "off", "bcast_flood", "off")
	if err != nil {
		return err
	}
	return n.setBridgePort(host, "fdb_flush")
}

func (n *Network) setBridgePort(host int, settings ...string) error {
	return ip(append([]string{"-n", n.hub, "link", "set", n.port(host), "type", "bridge_slave"}, settings...)...)
}

// Traffic is how many bytes a host has sent and been sent, as the switch counts
// them.
func (n *Network) Traffic(host int) (sent, received uint64, err error) {
	out, err := exec.Command("ip", "-n", n.hub, "-s", "-j", "link", "show", n.port(host)).Output()
	if err != nil {
		return 0, 0, err
	}
	type count struct{ Bytes uint64 }
	var links []struct{ Stats64 struct{ RX, TX count } }
	if err := json.Unmarshal(out, &links); err != nil || len(links) != 1 {
		return 0, 0, fmt.Errorf("ip has printed something else than a link: %w: %.80q", err, out)
	}
	return links[0].Stats64.RX.Bytes, links[0].Stats64.TX.Bytes, nil
}

// Close deletes the namespaces. Processes that are in them keep theirs until
// they end.
func (n *Network) Close() error {
	var errs []error
	for _, h := range append(n.hosts, n.hub) {
		errs = append(errs, ip("netns", "del", h))
	}
	n.hosts = nil
	return errors.Join(errs...)
}

// sweep deletes namespaces of processes that were killed.
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
