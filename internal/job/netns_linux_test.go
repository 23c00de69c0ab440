package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/proctest"
)

// A network is hosts that have nothing in common but a switch: network
// namespaces, linked by a bridge in one more. Nothing of it is seen outside.
type network struct {
	t     *testing.T
	hub   string
	hosts []string
	v6    bool
}

// networks counts those of this process.
var networks atomic.Int32

const netnsPrefix = "tutti-test-"

// newNetwork makes hosts that are gone after the test.
func newNetwork(t *testing.T, hosts int, v6 bool) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("there is no ip command (iproute2)")
	}
	_ = proctest.Self(t)
	sweepNetns()
	id := fmt.Sprint(netnsPrefix, os.Getpid(), "-", networks.Add(1), "-")
	n := &network{t: t, hub: id + "hub", v6: v6}
	if out, err := exec.Command("ip", "netns", "add", n.hub).CombinedOutput(); err != nil {
		t.Skipf("no network namespaces can be made here: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", n.hub).Run() })
	n.ip("-n", n.hub, "link", "add", "switch", "type", "bridge")
	n.ip("-n", n.hub, "link", "set", "switch", "up")
	for h := range hosts {
		host := id + strconv.Itoa(h)
		n.ip("netns", "add", host)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", host).Run() })
		n.hosts = append(n.hosts, host)
		port := n.port(h)
		n.ip("-n", n.hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
		n.ip("-n", n.hub, "link", "set", port, "master", "switch", "up")
		n.ip("-n", host, "link", "set", "lo", "up")
		n.ip("-n", host, "link", "set", "eth0", "up")
		bits := "24"
		if v6 {
			bits = "64"
		}
		args := []string{"-n", host, "addr", "add", n.addr(h) + "/" + bits, "dev", "eth0"}
		if v6 {
			args = append(args, "nodad")
		}
		n.ip(args...)
	}
	return n
}

// ip runs the command of that name.
func (n *network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// port is where a host is plugged in.
func (n *network) port(host int) string { return "port" + strconv.Itoa(host) }

// addr is a host's address.
func (n *network) addr(host int) string {
	if n.v6 {
		return fmt.Sprintf("fd00:7474::%d", host+1)
	}
	return fmt.Sprintf("192.0.2.%d", host+1)
}

// cut unplugs a host. Neither side is told.
func (n *network) cut(host int) { n.ip("-n", n.hub, "link", "set", n.port(host), "nomaster") }

// isolate keeps hosts from reaching each other. They reach all others.
func (n *network) isolate(hosts ...int) {
	for _, h := range hosts {
		n.ip("-n", n.hub, "link", "set", n.port(h), "type", "bridge_slave", "isolated", "on")
	}
}

// start starts ranks on hosts, by rank.
func (n *network) start(hosts []int, name string, env ...string) *world {
	n.t.Helper()
	const port = "7474"
	addr := n.addr(hosts[0]) + ":" + port
	if n.v6 {
		addr = "[" + n.addr(hosts[0]) + "]:" + port
	}
	w := new(world)
	for _, h := range hosts {
		cmd := exec.CommandContext(n.t.Context(), "ip", "netns", "exec", n.hosts[h], proctest.Self(n.t), "-test.run=^$")
		w.add(n.t, cmd, len(hosts), name, addr, env)
	}
	return w
}

// sweepNetns deletes namespaces of test processes that were killed.
func sweepNetns() {
	list, err := os.ReadDir("/run/netns")
	if err != nil {
		return
	}
	for _, f := range list {
		rest, ours := strings.CutPrefix(f.Name(), netnsPrefix)
		text, _, _ := strings.Cut(rest, "-")
		if pid, err := strconv.Atoi(text); ours && err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			_ = exec.CommandContext(ctx, "ip", "netns", "del", f.Name()).Run()
			cancel()
		}
	}
}

// wanted is what SameHost must say.
func wanted(hosts []int) string {
	first := make(map[int]int)
	var list []int
	for r, h := range hosts {
		if _, ok := first[h]; !ok {
			first[h] = r
		}
		list = append(list, first[h])
	}
	return fmt.Sprint("TUTTI_TEST_WANT=", list)
}

// TestNamespaces runs the suite on hosts that are network namespaces. They have
// one kernel, but must not find that they share a host.
func TestNamespaces(t *testing.T) {
	for _, c := range []struct {
		name  string
		hosts []int // by rank
		v6    bool
		tls   bool
		long  bool // not under -short
		// stride is the part of the suite that is run.
		stride int
	}{
		{name: "2x2", hosts: []int{0, 0, 1, 1}, stride: 1},
		{name: "2x2, in turn, TLS", hosts: []int{0, 1, 0, 1}, tls: true, long: true, stride: 5},
		{name: "3+2+1", hosts: []int{0, 1, 0, 2, 1, 0}, long: true, stride: 1},
		{name: "3+2+1, IPv6, TLS", hosts: []int{2, 0, 1, 0, 1, 0}, v6: true, tls: true, stride: 4},
		{name: "1+1+1", hosts: []int{0, 1, 2}, long: true, stride: 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.long && testing.Short() {
				t.Skip("not under -short")
			}
			n := newNetwork(t, 3, c.v6)
			env := []string{wanted(c.hosts)}
			if c.tls {
				env = append(env, encrypted(t)...)
			}
			env = append(env, sample(c.stride))
			n.start(c.hosts, "suite", env...).wait(t)
		})
	}
}
