package tcp

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/internal/wait"
)

// TestOffered checks that loopback addresses come last, that a bound address is offered alone, and that an
// IPv4 listener offers no IPv6 address. An unknown interface is an error.
func TestOffered(t *testing.T) {
	bound := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	all, err := offeredAddrs(bound("[::]:7"), "")
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range all {
		loop := netip.MustParseAddrPort(a).Addr().IsLoopback()
		if i > 0 && !loop && netip.MustParseAddrPort(all[i-1]).Addr().IsLoopback() {
			t.Errorf("a loopback address comes before %s: %v", a, all)
		}
	}
	if one, err := offeredAddrs(bound("127.0.0.1:7"), ""); err != nil || len(one) != 1 || one[0] != "127.0.0.1:7" {
		t.Errorf("got %v, %v", one, err)
	}
	four, err := offeredAddrs(bound("0.0.0.0:7"), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range four {
		if strings.Contains(a, "[") {
			t.Errorf("an IPv4 listener offers %s", a)
		}
	}
	if _, err := offeredAddrs(bound("[::]:7"), "no-such-interface"); err == nil {
		t.Error("an interface that is not there was found")
	}
}

// TestChosen checks lists of interfaces, and lists with ^, which exclude interfaces.
func TestChosen(t *testing.T) {
	for _, c := range []struct {
		choice, name string
		want         bool
	}{
		{"", "eth0", true},
		{"eth0", "eth0", true},
		{"eth0", "eth1", false},
		{"eth0,eth1", "eth1", true},
		{"^docker0,lo", "lo", false},
		{"^docker0,lo", "eth0", true},
	} {
		if got := interfaceChosen(c.choice, c.name); got != c.want {
			t.Errorf("chosen(%q, %q) = %v", c.choice, c.name, got)
		}
	}
}

// TestSameHostRanks compares the host parts of first addresses. Ports, listener ids and further addresses do not
// count, and a rank without an address is on a host of its own.
func TestSameHostRanks(t *testing.T) {
	peers := [][]string{{"10.0.0.1:1/0000000000000001", "127.0.0.1:1"}, {"10.0.0.2:1"}, {"10.0.0.1:9"}, nil}
	for rank, want := range [][]int{{0, 2}, {1}, {0, 2}, {3}} {
		if got := sameHostRanks(peers, rank); !slices.Equal(got, want) {
			t.Errorf("rank %d shares its host with %v, not %v", rank, got, want)
		}
	}
}

// TestSeveralAddresses connects to a rank whose first addresses lead nowhere or to another listener. Every
// rank exchanges frames all the same.
func TestSeveralAddresses(t *testing.T) {
	world := newWorld(t, 3, testOptions())
	port := func(l *Listener) string {
		a, _ := parseAddr(l.Addrs()[0])
		return a.hostPort
	}
	a, _ := parseAddr(world.listeners[2].Addrs()[0])
	// rank 1's address with rank 2's id
	wrong := addr{port(world.listeners[1]), a.id}.String()
	peers := [][]string{world.listeners[0].Addrs(), world.listeners[1].Addrs(), {"127.0.0.1:1", wrong, a.String()}}
	group := newGroup()
	second := &extraGroup{t: t}
	for _, r := range []int{0, 1, 2} {
		second.add(world.listeners[r].Mesh(MeshOptions{Group: group, Rank: r, Peers: peers}))
	}
	second.run(t, func(m *Mesh, w *wait.Waiter) error { return ring(m, w, []int{4, 5}) })
}

// TestMeshOptions checks that wrong MeshOptions, and a listener without a secret, are refused.
func TestMeshOptions(t *testing.T) {
	world := newWorld(t, 2, testOptions())
	for _, o := range []MeshOptions{
		{},
		{Rank: 2, Peers: [][]string{nil, nil}},
		{Rank: -1, Peers: [][]string{nil, nil}},
		{Rank: 0, Peers: [][]string{nil, nil}},
		{Rank: 0, Peers: [][]string{nil, {"nowhere"}}},
		{Rank: 0, Peers: [][]string{nil, {"127.0.0.1:1/12"}}},
	} {
		if _, err := world.listeners[0].Mesh(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if _, err := Listen(Options{}); err == nil {
		t.Error("a listener without a secret")
	}
}
