package mem

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// Options configure the connections. The zero value suits most tests.
type Options struct {
	// Frames is how many unreceived frames a connection buffers per direction. Zero: 4. Negative:
	// none; then a sender waits for its receiver, and an algorithm that depends on buffering
	// deadlocks.
	Frames int
	// Fault, if not nil, is called before the nth frame (from zero) from one rank to another. An
	// error breaks the connection between the two ranks. Fault must not call a Mesh.
	Fault func(from, to, nth int) error
}

const defaultFrames = 4

// network is the state that the ranks of a group share. mu guards everything but opt and ranks.
type network struct {
	opt   Options
	ranks []*Mesh
	gone  []atomic.Uint64 // by from*len(ranks) + to: not zero if from can no longer exchange with to

	mu     sync.Mutex
	routes []route // by from*len(ranks) + to
	subs   map[subKey]*sub
}

// A route holds what one rank has sent to another. network.mu guards it.
type route struct {
	sent   int // frames sent so far
	frames []*sentFrame
	broken error
}

// A Mesh is one rank's side of a group.
type Mesh struct {
	*Lane
	n      *network
	rank   int
	lot    *wait.ParkingLot
	events atomic.Uint64 // incremented when a connection of this rank changes

	closed bool // guarded by n.mu, as is why
	why    transport.Head
}

var _ transport.Mesh = (*Mesh)(nil)

// New returns the Meshes of a group of n ranks, by rank.
func New(n int, opt Options) []*Mesh {
	if opt.Frames == 0 {
		opt.Frames = defaultFrames
	}
	return newNetwork(n, opt).ranks
}

func newNetwork(n int, opt Options) *network {
	net := &network{
		opt: opt, ranks: make([]*Mesh, n), gone: make([]atomic.Uint64, n*n), routes: make([]route, n*n), subs: make(map[subKey]*sub),
	}
	for r := range net.ranks {
		net.ranks[r] = &Mesh{n: net, rank: r, lot: wait.NewParkingLot(n)}
	}
	for r, l := range NewLanes(LaneOptions{
		Ranks:      n,
		ParkingLot: func(rank int) *wait.ParkingLot { return net.ranks[rank].lot },
		Gone:       func(rank, peer int) *atomic.Uint64 { return &net.gone[rank*n+peer] },
		Why:        net.why,
	}) {
		net.ranks[r].Lane = l
	}
	return net
}

// Rank is this rank's number in the group.
func (m *Mesh) Rank() int { return m.rank }

// Size is the number of ranks.
func (m *Mesh) Size() int { return len(m.n.ranks) }

// Name returns the name of the transport.
func (m *Mesh) Name() string { return "memory" }

// ParkingLot is where this rank's waiters must park.
func (m *Mesh) ParkingLot() *wait.ParkingLot { return m.lot }

// Close ends the connections. Peers can still receive buffered frames.
func (m *Mesh) Close() error { return m.Leave(nil) }

// Leave is Close with a reason.
func (m *Mesh) Leave(why *transport.Head) error {
	m.n.mu.Lock()
	if why != nil && !m.closed {
		m.why = *why
	}
	m.closed = true
	for r := range m.n.ranks {
		m.n.endMessages(m.rank, r)
	}
	m.n.mu.Unlock()
	for _, o := range m.n.ranks {
		o.wake()
	}
	return nil
}

// wake makes the waiters of this rank check their connections again.
func (m *Mesh) wake() {
	m.events.Add(1)
	m.lot.Wake(nil)
}

// route returns the route between two ranks. The caller holds n.mu.
func (n *network) route(from, to int) *route { return &n.routes[from*len(n.ranks)+to] }

// endMessages ends the messages between two ranks. The caller wakes both.
func (n *network) endMessages(a, b int) {
	n.gone[a*len(n.ranks)+b].Store(1)
	n.gone[b*len(n.ranks)+a].Store(1)
}

// why returns why a rank cannot exchange with a peer any more.
func (n *network) why(rank, peer int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ranks[rank].lost(peer)
}

// lost returns why this rank cannot exchange with a peer any more, or nil. The caller holds n.mu.
func (m *Mesh) lost(peer int) error {
	if m.closed {
		return errClosed
	}
	err := m.n.route(m.rank, peer).broken
	if p := m.n.ranks[peer]; p.closed {
		err = &transport.Goodbye{Why: p.why}
	}
	if err == nil {
		return nil
	}
	return &transport.LostError{Peer: peer, Err: err}
}

var (
	errClosed   = errors.New("mem: the mesh is closed")
	errNoMember = errors.New("mem: this rank is not a member of the new group")
)

// subKey identifies a new group: the operation that formed it and its first member.
type subKey struct {
	seq   uint64
	first int
}

// sub is a new group and the number of members that have not called Sub.
type sub struct {
	n       *network
	missing int
}

// Sub returns this rank's Mesh of a new group with the given members, in order. All members call it
// with the same arguments.
func (m *Mesh) Sub(seq uint64, members []int) (*Mesh, error) {
	me := slices.Index(members, m.rank)
	if me < 0 {
		return nil, errNoMember
	}
	n := m.n
	n.mu.Lock()
	defer n.mu.Unlock()
	key := subKey{seq, members[0]}
	s := n.subs[key]
	if s == nil {
		s = &sub{newNetwork(len(members), n.opt), len(members)}
		n.subs[key] = s
	}
	if s.missing--; s.missing == 0 {
		delete(n.subs, key)
	}
	return s.n.ranks[me], nil
}
