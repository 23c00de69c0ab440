package mem

import (
	"slices"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// A sentFrame is a frame that is not received yet. Its body is a copy, or the sender's memory while
// the sender waits for the receiver.
type sentFrame struct {
	head  transport.Head
	body  []byte
	taken bool
}

// progress is the state of one Exchange.
type progress struct {
	out, in *transport.Frame // nil: complete
	sent    *sentFrame       // out's frame in the route; nil: not sent yet
}

// Exchange sends a frame and receives a frame.
func (m *Mesh) Exchange(w *wait.Waiter, out, in *transport.Frame) error {
	t := progress{out: out, in: in}
	for {
		seen := m.events.Load()
		err := m.advance(&t)
		if err == nil && t.out == nil && t.in == nil {
			return nil
		}
		if err == nil {
			_, err = w.AtLeast(&m.events, seen+1, nil)
		}
		if err != nil {
			m.withdrawFrame(&t)
			return err
		}
	}
}

// advance does what is possible without waiting.
func (m *Mesh) advance(t *progress) error {
	m.n.mu.Lock()
	defer m.n.mu.Unlock()
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

// sendFrame appends the frame to its route if there is room. The caller holds n.mu.
func (m *Mesh) sendFrame(t *progress) error {
	if t.sent != nil && t.sent.taken {
		t.out = nil
		return nil
	}
	f := t.out
	if err := m.lost(f.Peer); err != nil {
		return err
	}
	l := m.n.route(m.rank, f.Peer)
	room := m.n.opt.Frames
	if t.sent != nil || len(l.frames) >= max(room, 1) {
		return nil
	}
	if hook := m.n.opt.Fault; hook != nil {
		if err := hook(m.rank, f.Peer, l.sent); err != nil {
			m.breakRoute(f.Peer, err)
			return m.lost(f.Peer)
		}
	}
	l.sent++
	t.sent = &sentFrame{head: f.Head, body: f.Body}
	if room > 0 {
		t.sent.body = slices.Clone(f.Body)
		t.out = nil
	}
	l.frames = append(l.frames, t.sent)
	m.n.ranks[f.Peer].wake()
	return nil
}

// takeFrame receives the first frame of the route, if there is one. The caller holds n.mu.
func (m *Mesh) takeFrame(t *progress) error {
	f := t.in
	l := m.n.route(f.Peer, m.rank)
	if len(l.frames) == 0 {
		return m.lost(f.Peer)
	}
	p := l.frames[0]
	f.Head = p.head
	if len(p.body) != len(f.Body) {
		return &transport.LengthError{Peer: f.Peer, Want: len(f.Body), Sent: len(p.body)}
	}
	copy(f.Body, p.body)
	p.taken = true
	p.body = nil
	l.frames = slices.Delete(l.frames, 0, 1)
	t.in = nil
	m.n.ranks[f.Peer].wake()
	return nil
}

// breakRoute breaks the connection to a peer in both directions. The caller holds n.mu.
func (m *Mesh) breakRoute(peer int, err error) {
	m.n.route(m.rank, peer).broken = err
	m.n.route(peer, m.rank).broken = err
	m.n.endMessages(m.rank, peer)
	m.n.ranks[peer].wake()
	m.lot.Wake(nil)
}

// withdrawFrame removes the frame of a failed Exchange, so that no receiver reads the sender's
// memory.
func (m *Mesh) withdrawFrame(t *progress) {
	if t.sent == nil || t.out == nil {
		return
	}
	m.n.mu.Lock()
	l := m.n.route(m.rank, t.out.Peer)
	l.frames = slices.DeleteFunc(l.frames, func(p *sentFrame) bool { return p == t.sent })
	m.n.mu.Unlock()
}
