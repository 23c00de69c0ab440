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

// lingerFor is how long Close waits for a peer that does not take what it was
// sent.
const lingerFor = time.Second

var errMeshClosed = errors.New("tcp: this rank has closed the mesh")

// A Mesh is one rank's connections within one group. Exchange is for one
// goroutine at a time, the other methods for any number.
type Mesh struct {
	key   key
	rank  int
	size  int
	peers [][]addr
	l     *Listener

	closing atomic.Bool
	ctx     context.Context // of the calls this mesh makes
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu    sync.Mutex
	slots [lanes][]slot // by peer

	exchangeMu sync.Mutex
	exchange   exchange
	messages   messenger
}

var _ transport.Mesh = (*Mesh)(nil)

// A slot is where a link will be. All but link is guarded by Mesh.mu.
type slot struct {
	link   atomic.Pointer[link]
	peer   int
	lane   byte
	state  slotState
	dialed bool // this rank has called
	err    error
	ready  chan struct{}      // closed when there is a link or an error
	cancel context.CancelFunc // ends this rank's call
}

type slotState int

const (
	slotEmpty slotState = iota
	slotDialing
	slotAccepting // a peer's call is being welcomed
	slotUp
	slotFailed
)

// Mesh makes one rank's side of a group, which a process does at most once.
// Connections are made when they are first needed.
func (l *Listener) Mesh(opts MeshOptions) (*Mesh, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	m := &Mesh{key: key{opts.Group, opts.Rank}, rank: opts.Rank, size: len(opts.Peers), l: l}
	for _, list := range opts.Peers {
		var addrs []addr
		for _, s := range list {
			a, _ := parseAddr(s) // validate has
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
	crowded := opts.oversubscribed()
	m.exchange.spinPoll = spinPoll{oversubscribed: crowded, closing: &m.closing}
	m.messages.setup(m, crowded)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	calls, ok := l.registry.add(m)
	if !ok {
		m.cancel()
		return nil, fmt.Errorf("tcp: rank %d has made group %x before", m.rank, m.key.group)
	}
	for _, c := range calls {
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

// Close says goodbye on all links and closes them.
func (m *Mesh) Close() error { return m.Leave(nil) }

// Leave is Close with a reason, which reaches those with whom nothing is in the
// middle of being sent.
func (m *Mesh) Leave(why *transport.Head) error {
	// Under the lock: no call is started after this one has begun to wait for
	// those that were.
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

// settle gives a slot its final state; Mesh.mu is held.
func (s *slot) settle(state slotState, l *link, err error) {
	if s.state != slotUp && s.state != slotFailed {
		close(s.ready)
	}
	s.state, s.err = state, err
	s.link.Store(l)
}

// need starts to connect a slot, unless that is under way.
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

// await returns a slot's link once it is there.
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

// call connects to a peer.
func (m *Mesh) dialSlot(ctx context.Context, s *slot) {
	c, err := m.dial(ctx, s)
	m.settleSlot(s, slotDialing, c, err)
}

// conclude settles a slot, unless it has gone on from the given state.
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
	// Frames wait for the slot, messages for this.
	if s.lane == laneMessages {
		m.messages.linkSettled(s)
	}
}

// adopt takes a peer's call, or says why not. When both ranks call at once,
// the lower rank's call counts.
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
