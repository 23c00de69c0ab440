package mem

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// Options say how the connections behave. The zero value is right for most.
type Options struct {
	// Frames is how many frames from one rank to another are held until they
	// are received. Zero: 4. Negative: none, so that whoever sends waits for
	// the receiver, and an algorithm that needs a buffer anywhere gets stuck.
	Frames int
	// Fault, if it is not nil, is asked before the nth frame (from zero) goes
	// from one rank to another. An error breaks the connection between them.
	// It must not call back into a Mesh.
	Fault func(from, to, nth int) error
}

const defaultFrames = 4

// network is what the ranks of one group share. One lock guards it all.
type network struct {
	opt   Options
	ranks []*Mesh

	mu     sync.Mutex
	routes []route // from one rank to another: from*ranks + to
	subs   map[subKey]*sub
}

// A line is what goes from one rank to another.
type route struct {
	sent   int // frames
	frames []*sentFrame
	sends  []*msgState
	recvs  []*msgState
	broken error
}

// Mesh is one rank's side of a group.
type Mesh struct {
	n      *network
	rank   int
	lot    *wait.ParkingLot
	events atomic.Uint64 // counts what has happened to this rank's connections

	closed bool // guarded by n.mu, as is the next
	why    transport.Head
}

var _ transport.Mesh = (*Mesh)(nil)

// New returns the sides of a group of n ranks.
func New(n int, opt Options) []*Mesh {
	if opt.Frames == 0 {
		opt.Frames = defaultFrames
	}
	return newNetwork(n, opt).ranks
}

func newNetwork(n int, opt Options) *network {
	net := &network{opt: opt, ranks: make([]*Mesh, n), routes: make([]route, n*n), subs: make(map[subKey]*sub)}
	for r := range net.ranks {
		net.ranks[r] = &Mesh{n: net, rank: r, lot: wait.NewParkingLot(n)}
	}
	return net
}

// Rank is this rank's number in the group.
func (m *Mesh) Rank() int { return m.rank }

// Size is the number of ranks.
func (m *Mesh) Size() int { return len(m.n.ranks) }

// Lot is where this rank's waiters must park to be woken.
func (m *Mesh) ParkingLot() *wait.ParkingLot { return m.lot }

// Close ends the connections. What was sent and is held can still be received.
func (m *Mesh) Close() error { return m.Leave(nil) }

// Leave is Close with a reason.
func (m *Mesh) Leave(why *transport.Head) error {
	m.n.mu.Lock()
	if why != nil && !m.closed {
		m.why = *why
	}
	m.closed = true
	m.n.mu.Unlock()
	for _, o := range m.n.ranks {
		o.wake()
	}
	return nil
}

// tell lets the rank look again.
func (m *Mesh) wake() {
	m.events.Add(1)
	m.lot.Wake(nil)
}

// line is what goes from one rank to another; n.mu is held.
func (n *network) route(from, to int) *route { return &n.routes[from*len(n.ranks)+to] }

// lost is why nothing moves between this rank and a peer any more, or nil;
// n.mu is held.
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

// subKey names a group that is being made: the operation that decided it, and
// its first member.
type subKey struct {
	seq   uint64
	first int
}

// sub is a new group and how many of its members have not yet come for it.
type sub struct {
	n       *network
	missing int
}

// Sub returns this rank's side of a new group of some of the ranks, in the
// given order. All members call it with the same arguments.
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
