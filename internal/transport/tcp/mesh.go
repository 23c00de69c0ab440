package tcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// lingerFor bounds how long Close waits for a peer that does not read what it was sent. The comment of
// tutti.Comm.Close counts it.
const lingerFor = time.Second

var errMeshClosed = errors.New("tcp: this rank has closed the mesh")

// A Mesh is one rank's connections within one group. One goroutine at a time may call Exchange. The
// other methods are safe for concurrent use.
type Mesh struct {
	key   key
	rank  int
	size  int
	peers [][]addr
	l     *Listener

	closing atomic.Bool
	ctx     context.Context // of this mesh's dials
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu    sync.Mutex    // guards the slots, except their links
	slots [lanes][]slot // by lane and peer

	exchangeMu sync.Mutex // held by Exchange
	exchange   exchange   // guarded by exchangeMu
	messages   messenger
}

var _ transport.Mesh = (*Mesh)(nil)

// A slot holds the link of one lane to one peer, once there is one. Mesh.mu guards all fields but
// link.
type slot struct {
	link   atomic.Pointer[link]
	peer   int
	lane   byte
	state  slotState
	dialed bool // this rank has dialed
	err    error
	ready  chan struct{}      // closed when there is a link or an error
	cancel context.CancelFunc // ends this rank's dial
}

// A slotState is the state of a slot. slotUp and slotFailed are final.
type slotState int

const (
	slotEmpty slotState = iota
	slotDialing
	slotAccepting // the peer's connection is being sent its welcome
	slotUp
	slotFailed
)

// Mesh makes one rank's side of a group. A process makes each side at most once. Connections are
// made on first use.
func (l *Listener) Mesh(opts MeshOptions) (*Mesh, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	m := &Mesh{key: key{opts.Group, opts.Rank}, rank: opts.Rank, size: len(opts.Peers), l: l}
	for _, list := range opts.Peers {
		var addrs []addr
		for _, s := range list {
			a, _ := parseAddr(s) // validate has checked it
			addrs = append(addrs, a)
		}
		m.peers = append(m.peers, addrs)
	}
	for lane := range m.slots {
		m.slots[lane] = make([]slot, m.size)
		for peer := range m.slots[lane] {
			s := &m.slots[lane][peer]
			s.peer, s.lane, s.ready = peer, byte(lane), make(chan struct{})
		}
	}
	oversubscribed := opts.oversubscribed()
	m.exchange.spinPoll = spinPoll{oversubscribed: oversubscribed, closing: &m.closing}
	m.messages.setup(m, oversubscribed)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	parked, ok := l.registry.add(m)
	if !ok {
		m.cancel()
		return nil, fmt.Errorf("tcp: rank %d has already made group %x", m.rank, m.key.group)
	}
	for _, c := range parked {
		if s := m.accept(c); s != statusOK {
			l.refuseWith(c, s)
		}
	}
	return m, nil
}

// Rank is this rank's number in the group.
func (m *Mesh) Rank() int { return m.rank }

// Size is the number of ranks.
func (m *Mesh) Size() int { return m.size }

// Name returns the name of the transport.
func (m *Mesh) Name() string {
	if m.l.opts.TLS != nil {
		return "tcp with tls"
	}
	return "tcp"
}

// Close says goodbye on all links and closes them.
func (m *Mesh) Close() error { return m.Leave(nil) }

// Leave is Close with a reason. A peer gets the reason unless a frame or message to it is partly sent. It
// ends the dials and waits for their goroutines, and ends blocked calls with errMeshClosed. Later calls do
// nothing.
func (m *Mesh) Leave(why *transport.Head) error {
	// With the lock held, no dial starts after wg.Wait has begun.
	m.mu.Lock()
	closed := m.closing.Swap(true)
	m.mu.Unlock()
	if closed {
		return nil
	}
	m.l.registry.remove(m)
	m.cancel()
	m.wg.Wait()
	var links []*link
	m.exchangeMu.Lock()
	m.messages.close()
	m.mu.Lock()
	for lane := range m.slots {
		for i := range m.slots[lane] {
			s := &m.slots[lane][i]
			if l := s.link.Swap(nil); l != nil {
				links = append(links, l)
			}
			s.settle(slotFailed, nil, errMeshClosed)
		}
	}
	m.mu.Unlock()
	m.exchangeMu.Unlock()
	closeLinks(links, why, lingerFor)
	m.messages.release()
	return nil
}

// settle sets the final state of a slot. The caller holds Mesh.mu.
func (s *slot) settle(state slotState, l *link, err error) {
	if s.state != slotUp && s.state != slotFailed {
		close(s.ready)
	}
	s.state, s.err = state, err
	s.link.Store(l)
}

// startDial starts to dial for a slot, unless the slot is in use.
func (m *Mesh) startDial(s *slot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.state != slotEmpty || m.closing.Load() {
		return
	}
	ctx, cancel := context.WithCancel(m.ctx)
	s.state, s.dialed, s.cancel = slotDialing, true, cancel
	m.wg.Go(func() {
		defer cancel()
		m.dialSlot(ctx, s)
	})
}

// awaitLink returns the link of a slot when it is connected, and starts a dial if there is none. It runs on
// the caller's goroutine; the end of w, Close of the mesh or the slot's error ends it. m.mu guards the slot.
func (m *Mesh) awaitLink(w *wait.Waiter, s *slot) (*link, error) {
	m.startDial(s)
	tick := time.NewTicker(maxSleep)
	defer tick.Stop()
	for {
		if m.closing.Load() {
			return nil, errMeshClosed
		}
		if _, err := w.Check(); err != nil {
			return nil, err
		}
		select {
		case <-s.ready:
			m.mu.Lock()
			defer m.mu.Unlock()
			return s.link.Load(), s.err
		case <-tick.C:
		}
	}
}

// dialSlot dials a peer.
func (m *Mesh) dialSlot(ctx context.Context, s *slot) {
	c, err := m.dial(ctx, s)
	m.settleSlot(s, slotDialing, c, err)
}

// settleSlot ends a dial or a handshake. If the slot is still in the state from, it gets its final state: up
// with connection c, or failed with err. If the state has changed meanwhile, or the mesh is closing, err is
// dropped, and c is closed with a goodbye, which takes up to lingerFor. settleSlot runs without m.mu, on the
// goroutine of a dial, of an accepted connection's handshake, or of the caller of Listener.Mesh (see accept).
func (m *Mesh) settleSlot(s *slot, from slotState, c *conn, err error) {
	var l *link
	if err != nil {
		err = &transport.LostError{Peer: s.peer, Err: err}
	} else {
		l = newLink(s.peer, c)
	}
	m.mu.Lock()
	current := s.state == from && !m.closing.Load()
	if current && err != nil {
		s.settle(slotFailed, nil, err)
	} else if current {
		s.settle(slotUp, l, nil)
	}
	m.mu.Unlock()
	if !current {
		if l != nil {
			closeLinks([]*link{l}, nil, lingerFor)
		}
		return
	}
	// On the lane of frames Exchange waits in awaitLink for s.ready, which settle has closed. On the lane of
	// messages no goroutine waits for the slot, so the messenger is called.
	if s.lane == laneMessages {
		m.messages.linkSettled(s)
	}
}

// accept takes an authenticated connection of a peer, or returns why not. If both ranks dial at once, the
// lower rank's connection is used. After statusOK the mesh owns the connection, and the slot holds the error
// if the welcome could not be sent. It runs on the goroutine of a handshake or of the caller of
// Listener.Mesh; m.mu guards the slot.
func (m *Mesh) accept(c *incoming) status {
	if c.hello.size != m.size {
		return statusSize
	}
	s := &m.slots[c.hello.lane][c.hello.from]
	m.mu.Lock()
	switch {
	case m.closing.Load():
		m.mu.Unlock()
		return statusClosed
	case s.state == slotFailed:
		m.mu.Unlock()
		return statusClosed
	case s.dialed && m.rank < s.peer:
		m.mu.Unlock()
		return statusCrossed
	case s.state == slotAccepting || s.state == slotUp:
		m.mu.Unlock()
		return statusConnected
	}
	if s.cancel != nil {
		s.cancel()
	}
	s.state, s.dialed = slotAccepting, false
	m.mu.Unlock()

	_ = c.conn.SetWriteDeadline(time.Now().Add(m.l.opts.HandshakeTimeout))
	_, err := c.conn.Write(welcome(statusOK))
	var fd *conn
	if err == nil {
		fd, err = detachFD(c.conn, m.l.opts.DeadAfter)
	} else {
		_ = c.conn.Close()
	}
	m.settleSlot(s, slotAccepting, fd, err)
	return statusOK
}
