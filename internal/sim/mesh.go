package sim

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/match"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// A group is a set of ranks of a job, and their connections.
type group struct {
	w       *World
	j       *job
	name    string
	ranks   []int // the members' ranks in the job
	meshes  []*mesh
	members []*member // nil: has not joined yet
}

// A mesh is one rank's transport in a group.
type mesh struct {
	g      *group
	p      *proc
	at     *participant
	rank   int
	lot    *wait.ParkingLot
	events atomic.Uint64 // number of events on this rank's connections; waiters wait for a change
	peers  map[int]*peer
	closed bool
	why    transport.Head

	handler transport.Handler
	inbox   match.Inbox // of all peers and this rank
}

var _ transport.Mesh = (*mesh)(nil)

// A peer is one rank's side of its connection to another rank.
type peer struct {
	frames, messages lane // to the peer

	sent           uint64 // frames
	unacknowledged int    // frames that are sent and not known to be taken
	inbox          []*frame
	taken          uint64 // frames
	goodbyes       int    // number of its lanes on which the peer has announced that it has closed its mesh
	why            transport.Head
	goodbyeSent    bool // this rank has announced that it has closed its mesh
}

// A frame is in transit or has arrived.
type frame struct {
	number uint64
	head   transport.Head
	body   []byte
	taken  bool
}

// Rank returns this rank's number in the group.
func (m *mesh) Rank() int { return m.rank }

// Size returns the number of ranks.
func (m *mesh) Size() int { return len(m.g.meshes) }

// Name returns the name of the transport.
func (m *mesh) Name() string { return "simulated" }

// notify makes the rank's waits check their conditions again.
func (m *mesh) notify() {
	m.events.Add(1)
	m.lot.Wake(nil)
}

// peer returns this rank's side of a connection, and makes it on the first call.
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
	return &peer{frames: lane{from: from, to: to}, messages: lane{from: from, to: to}}
}

// lost returns why data no longer moves between this rank and a peer, or nil.
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

// arrived reports whether data from a peer still reaches this rank.
func (m *mesh) arrived(from *mesh) bool { return !m.closed && m.at.cut[from.at.rank] == nil }

// Close ends the connections. Data that was sent still arrives.
func (m *mesh) Close() error { return m.Leave(nil) }

// Leave is Close with a reason. It announces to each connected peer, after all
// data, that nothing will follow. A second call, or a call of a dead process, does
// nothing. The error is always nil.
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

// sayGoodbye announces to a peer, after all data, that nothing will follow.
func (m *mesh) sayGoodbye(rank int) {
	c, o := m.peers[rank], m.g.meshes[rank]
	if c.goodbyeSent || o == m || m.p.dead {
		return
	}
	c.goodbyeSent = true
	for _, l := range []*lane{&c.frames, &c.messages} {
		m.g.w.net.send(l, 0, func() {
			o.peers[m.rank].why = m.why
			o.peers[m.rank].goodbyes++
			o.notify()
		})
	}
}

var (
	errClosed    = errors.New("sim: the mesh is closed")
	errNotPosted = errors.New("sim: the message was not posted")
)

// exchangeState is the progress of an Exchange.
type exchangeState struct {
	out, in *transport.Frame // nil: done
	frame   *frame           // the outgoing frame, once it is in transit
}

// Exchange sends a frame and receives a frame.
func (m *mesh) Exchange(w *wait.Waiter, out, in *transport.Frame) error {
	m.p.checkpoint()
	t := exchangeState{out: out, in: in}
	for {
		seen := m.events.Load()
		err := m.advance(&t)
		if err != nil || t.out == nil && t.in == nil {
			return err
		}
		if _, err := w.AtLeast(&m.events, seen+1, nil); err != nil {
			return err
		}
	}
}

// advance does what is possible without waiting.
func (m *mesh) advance(t *exchangeState) error {
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

// sendFrame sends the frame when the window has room. With no window, the sender
// waits until the frame is taken.
func (m *mesh) sendFrame(t *exchangeState) error {
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
	if t.frame != nil || c.unacknowledged >= max(room, 1) {
		return nil
	}
	o := m.g.meshes[f.Peer]
	sent := m.p.beforeSend(o.p)
	if !sent {
		m.p.checkpoint()
	}
	x := &frame{number: c.sent, head: f.Head, body: slices.Clone(f.Body)}
	t.frame = x
	if room > 0 {
		t.out = nil
	}
	c.sent++
	c.unacknowledged++
	m.g.w.s.log.note(m.g.w.s.now, "frame", m.p.rank, o.p.rank, len(f.Body))
	m.g.w.net.send(&c.frames, transport.HeadBytes+len(f.Body), func() {
		if o.arrived(m) {
			theirs := o.peers[m.rank]
			theirs.inbox = append(theirs.inbox, x)
			o.notify()
		}
	})
	m.p.checkpoint()
	return nil
}

// takeFrame takes the first frame that has arrived, if there is one. If none has
// arrived, it returns nil, or the reason why none will arrive; the exchange is
// complete when t.in is nil. The acknowledgement that it sends makes room in the
// sender's window.
func (m *mesh) takeFrame(t *exchangeState) error {
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
		o.peers[m.rank].unacknowledged--
		o.notify()
	})
	return nil
}
