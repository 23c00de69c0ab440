package sim

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// A group is some of a job's ranks, and their connections.
type group struct {
	w       *World
	j       *job
	name    string
	ranks   []int // by their numbers in the job
	meshes  []*mesh
	members []*member // nil: it has not come yet
}

// A mesh is one rank's side of a group.
type mesh struct {
	g      *group
	p      *proc
	at     *post
	rank   int
	lot    *wait.ParkingLot
	news   atomic.Uint64 // counts what has happened to this rank's connections
	peers  map[int]*peer
	closed bool
	why    transport.Head
}

var _ transport.Mesh = (*mesh)(nil)

// A peer is one rank's side of its connection to another.
type peer struct {
	frames, mail lane // to the peer

	sent     uint64 // frames
	under    int    // frames that are sent and not known to be taken
	inbox    []*frame
	taken    uint64 // frames
	sends    []*letter
	recvs    []*letter
	goodbyes int // on how many of its lanes the peer has said that it has closed its mesh
	why      transport.Head
	farewell bool // this rank has told it that it has
}

// A frame is one on its way, or arrived.
type frame struct {
	number uint64
	head   transport.Head
	body   []byte
	taken  bool
}

// Rank is this rank's number in the group.
func (m *mesh) Rank() int { return m.rank }

// Size is the number of ranks.
func (m *mesh) Size() int { return len(m.g.meshes) }

// tell lets the rank look again.
func (m *mesh) tell() {
	m.news.Add(1)
	m.lot.Wake(nil)
}

// peer is this rank's side of a connection, which is made when it is first
// asked for.
func (m *mesh) peer(rank int) *peer {
	if c := m.peers[rank]; c != nil {
		return c
	}
	o := m.g.meshes[rank]
	mine, theirs := newPeer(m.p, o.p), newPeer(o.p, m.p)
	if o == m {
		theirs = mine
	}
	m.peers[rank], o.peers[m.rank] = mine, theirs
	if o.closed {
		o.sayGoodbye(m.rank)
	}
	return mine
}

func newPeer(from, to *proc) *peer {
	return &peer{frames: lane{from: from, to: to}, mail: lane{from: from, to: to}}
}

// lost is why nothing moves between this rank and a peer any more, or nil.
func (m *mesh) lost(rank int, c *peer) error {
	switch err := m.at.cut[m.g.ranks[rank]]; {
	case m.closed:
		return errClosed
	case err != nil:
		return &transport.LostError{Peer: rank, Err: err}
	case c.goodbyes == 2:
		return &transport.LostError{Peer: rank, Err: &transport.Goodbye{Why: c.why}}
	}
	return nil
}

// arrived reports whether what comes from a peer still reaches this rank.
func (m *mesh) arrived(from *mesh) bool { return !m.closed && m.at.cut[from.at.rank] == nil }

// Close ends the connections. What was sent still arrives.
func (m *mesh) Close() error { return m.Leave(nil) }

// Leave is Close with a reason.
func (m *mesh) Leave(why *transport.Head) error {
	if m.closed || m.p.dead {
		return nil
	}
	m.closed = true
	if why != nil {
		m.why = *why
	}
	for r := range m.g.meshes {
		if m.peers[r] != nil {
			m.sayGoodbye(r)
		}
	}
	return nil
}

// sayGoodbye tells a peer, after all that was sent, that nothing will follow.
func (m *mesh) sayGoodbye(rank int) {
	c, o := m.peers[rank], m.g.meshes[rank]
	if c.farewell || o == m || m.p.dead {
		return
	}
	c.farewell = true
	for _, l := range []*lane{&c.frames, &c.mail} {
		m.g.w.net.send(l, 0, func() {
			o.peers[m.rank].why = m.why
			o.peers[m.rank].goodbyes++
			o.tell()
		})
	}
}

var (
	errClosed    = errors.New("sim: the mesh is closed")
	errNotPosted = errors.New("sim: the message was not posted")
)

// transit is how far an Exchange has come.
type transit struct {
	out, in *transport.Frame // nil: done
	frame   *frame           // out's, once it is on its way
}

// Exchange sends a frame and receives one.
func (m *mesh) Exchange(w *wait.Waiter, out, in *transport.Frame) error {
	m.p.checkpoint()
	t := transit{out: out, in: in}
	for {
		seen := m.news.Load()
		err := m.advance(&t)
		if err != nil || t.out == nil && t.in == nil {
			return err
		}
		if _, err := w.AtLeast(&m.news, seen+1, nil); err != nil {
			return err
		}
	}
}

// advance does what can be done without waiting.
func (m *mesh) advance(t *transit) error {
	if t.out != nil {
		if err := m.sendFrame(t); err != nil {
			return err
		}
	}
	if t.in != nil {
		return m.takeFrame(t)
	}
	return nil
}

// sendFrame puts the frame on its way when there is room. Without any, the
// sender waits until it is taken.
func (m *mesh) sendFrame(t *transit) error {
	if t.frame != nil && t.frame.taken {
		t.out = nil
		return nil
	}
	f := t.out
	c := m.peer(f.Peer)
	if err := m.lost(f.Peer, c); err != nil {
		return err
	}
	room := m.g.w.opt.Window
	if t.frame != nil || c.under >= max(room, 1) {
		return nil
	}
	o := m.g.meshes[f.Peer]
	sent := m.p.leaving(o.p)
	if !sent {
		m.p.checkpoint()
	}
	x := &frame{number: c.sent, head: f.Head, body: slices.Clone(f.Body)}
	t.frame = x
	if room > 0 {
		t.out = nil
	}
	c.sent++
	c.under++
	m.g.w.s.log.note(m.g.w.s.now, "frame", m.p.rank, o.p.rank, len(f.Body))
	m.g.w.net.send(&c.frames, transport.HeadBytes+len(f.Body), func() {
		if o.arrived(m) {
			theirs := o.peers[m.rank]
			theirs.inbox = append(theirs.inbox, x)
			o.tell()
		}
	})
	m.p.checkpoint()
	return nil
}

// takeFrame takes the first frame that has arrived, if there is one.
func (m *mesh) takeFrame(t *transit) error {
	f := t.in
	c := m.peer(f.Peer)
	if len(c.inbox) == 0 {
		return m.lost(f.Peer, c)
	}
	x := c.inbox[0]
	c.inbox = slices.Delete(c.inbox, 0, 1)
	if x.number != c.taken {
		m.g.w.violate(fmt.Errorf("rank %d takes frame %d of rank %d after frame %d", m.p.rank, x.number, f.Peer, c.taken))
	}
	c.taken++
	f.Head = x.head
	if len(x.body) != len(f.Body) {
		return &transport.LengthError{Peer: f.Peer, Want: len(f.Body), Sent: len(x.body)}
	}
	copy(f.Body, x.body)
	x.body = nil
	t.in = nil
	o := m.g.meshes[f.Peer]
	m.g.w.net.send(&c.frames, 0, func() {
		if !o.arrived(m) {
			return
		}
		x.taken = true
		o.peers[m.rank].under--
		o.tell()
	})
	return nil
}
