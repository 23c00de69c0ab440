package job

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/tutti-go/tutti/internal/netns"
	"github.com/tutti-go/tutti/internal/proctest"
)

// A testNetwork is a network of hosts that share only a switch.
type testNetwork struct {
	*netns.Network
	t  *testing.T
	v6 bool
}

// networks counts the networks of this process.
var networks atomic.Int32

// newNetwork makes hosts that are deleted after the test.
func newNetwork(t *testing.T, hosts int, v6 bool) *testNetwork {
	t.Helper()
	_ = proctest.Self(t)
	n, err := netns.New(int(networks.Add(1)), hosts, v6)
	switch {
	case errors.Is(err, netns.ErrUnavailable):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return &testNetwork{n, t, v6}
}

// start starts ranks on hosts, by rank.
func (n *testNetwork) start(hosts []int, name string, env ...string) *world {
	n.t.Helper()
	const port = "7474"
	addr := n.Addr(hosts[0]) + ":" + port
	if n.v6 {
		addr = "[" + n.Addr(hosts[0]) + "]:" + port
	}
	w := new(world)
	for _, h := range hosts {
		cmd := n.Command(n.t.Context(), h, proctest.Self(n.t), "-test.run=^$")
		w.add(n.t, cmd, len(hosts), name, addr, env)
	}
	return w
}

// wanted is the expected result of SameHost.
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

// TestNamespaces runs the suite on hosts that are network namespaces. They have one kernel, but
// must not appear as one host.
func TestNamespaces(t *testing.T) {
	for _, c := range []struct {
		name  string
		hosts []int // by rank
		v6    bool
		tls   bool
		long  bool // skipped under -short
		// stride selects every stride-th case of the suite.
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
