package tcp

import (
	"context"
	"errors"
	"sync"

	"github.com/tutti-go/tutti/internal/match"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
	"golang.org/x/sys/unix"
)

var (
	errNotPosted = errors.New("tcp: the message was not posted")
	errWithdrawn = errors.New("it has withdrawn the message")
)

// A messenger is the message lane of a mesh. A sender announces a message. The inbox matches it with a
// receive, whose Finish calls the handler and then clears the sender, which sends the data.
//
// One goroutine in Finish, the driver, polls the sockets of all peers until its own message is
// done. Other goroutines in Finish sleep; a driver that returns wakes one of them as the next
// driver. mu is held for everything but sleeping, so that no other goroutine accesses the body of a
// withdrawn message once mu is free.
type messenger struct {
	m    *Mesh
	poll spinPoll // the driver's

	mu         sync.Mutex
	handler    transport.Handler
	inbox      match.Inbox     // of all peers and this rank
	anyWaiting int             // receives from any rank in the inbox
	peers      []*peerMessages // by peer; nil: no message yet
	active     []*peerMessages // peers that the driver reads from in each round
	self       peerMessages    // messages of this rank with itself
	lost       int             // number of lost peers
	lostErr    error           // of the peer that was lost last
	waiting    []*msgState     // messages in Finish without the driver
	driving    bool
	sleeping   bool // the driver sleeps in poll(2)
	wakeup     *wakeup
	rounds     int             // of the driver
	fds        []unix.PollFd   // the driver's buffer for poll(2)
	polled     []*peerMessages // of fds[1:]
	spare      []*msgState
	closedErr  error // set when the mesh is closed
}

func (s *messenger) setup(m *Mesh, oversubscribed bool) {
	s.m = m
	s.poll = spinPoll{oversubscribed: oversubscribed, closing: &m.closing}
	s.peers = make([]*peerMessages, m.size)
	s.self.setup(s, m.rank)
}

// peer returns the messages with a peer. The caller holds s.mu.
func (s *messenger) peer(peer int) *peerMessages {
	if peer == s.m.rank {
		return &s.self
	}
	p := s.peers[peer]
	if p == nil {
		p = new(peerMessages)
		p.setup(s, peer)
		s.peers[peer] = p
	}
	return p
}

// list makes a peer active. The caller holds s.mu.
func (s *messenger) list(p *peerMessages) {
	if !p.listed && !p.self {
		p.listed = true
		s.active = append(s.active, p)
	}
}

// Handle sets the handler of the message lane.
func (m *Mesh) Handle(h transport.Handler) {
	m.messages.mu.Lock()
	m.messages.handler = h
	m.messages.mu.Unlock()
}

// Post announces messages. If the socket takes an announcement, it is sent at once. A receive from
// any rank connects this rank with all peers, so that their end is noticed.
func (m *Mesh) Post(msg *transport.Message) {
	s := &m.messages
	s.mu.Lock()
	defer s.mu.Unlock()
	for msg != nil {
		next := msg.Next
		msg.Next = nil
		m.post(msg)
		msg = next
	}
	s.wakeDriver()
}

// post announces a message. The caller holds s.mu.
func (m *Mesh) post(msg *transport.Message) {
	s := &m.messages
	x := s.newState(msg)
	msg.State, msg.Untaken = x, false
	msg.Matched.Store(false)
	x.receive = match.Receive{From: msg.Peer, Tag: msg.Tag, Owner: x}
	switch {
	case s.closedErr != nil:
		x.finish(s.closedErr)
	case msg.Peer == transport.AnyRank && !msg.Send:
		s.connectAll()
		s.postReceive(x)
	case msg.Peer < 0 || msg.Peer >= m.size:
		x.finish(errNotPosted)
	default:
		s.postToPeer(x, s.peer(msg.Peer))
	}
}

// postToPeer posts a send, or a receive from one peer. The caller holds s.mu.
func (s *messenger) postToPeer(x *msgState, p *peerMessages) {
	if p.err != nil {
		x.finish(p.err)
		return
	}
	x.peer = p
	s.addOpen(p)
	if x.msg.Send {
		p.postSend(x)
	} else {
		s.postReceive(x)
	}
	switch {
	case p.self:
	case p.link == nil:
		s.dial(p)
	default:
		s.writeOut(p)
	}
}

// connectAll makes all peers active and dials those without a link. The caller holds s.mu.
func (s *messenger) connectAll() {
	for peer := range s.m.size {
		p := s.peer(peer)
		if p.self || p.err != nil {
			continue
		}
		s.list(p)
		if p.link == nil {
			s.dial(p)
		}
	}
}

// dial starts to connect to a peer, unless that is under way. The caller holds s.mu.
func (s *messenger) dial(p *peerMessages) { s.m.startDial(&s.m.slots[laneMessages][p.peer]) }

// linkSettled is called when a slot has a link or an error.
func (s *messenger) linkSettled(at *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peer(at.peer)
	s.m.mu.Lock()
	l, err := at.link.Load(), at.err
	s.m.mu.Unlock()
	if s.closedErr != nil {
		return
	}
	if err != nil {
		p.fail(err)
	} else {
		p.link = l
		if s.anyWaiting > 0 {
			s.list(p)
		}
		s.writeOut(p)
	}
	s.wakeDriver()
}

// writeOut writes the queued headers of a peer. The caller holds s.mu.
func (s *messenger) writeOut(p *peerMessages) bool {
	moved, err := p.writeOut()
	if err != nil {
		p.fail(p.link.lost(err))
	}
	return moved
}

// Finish waits until a message is delivered. If w ends or the peer is lost, Finish withdraws the
// message. After Finish the messenger does not access the message's body.
func (m *Mesh) Finish(w *wait.Waiter, msg *transport.Message) error {
	x, ok := msg.State.(*msgState)
	if !ok || x.msg != msg {
		return errNotPosted
	}
	s := &m.messages
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.await(w, x)
	if !x.done {
		s.withdraw(x)
		if p := x.peer; p != nil && p.link != nil && p.err == nil {
			s.writeOut(p)
		}
		s.wakeDriver()
	}
	msg.Untaken = err != nil && !msg.Send && !x.cleared
	s.wakeNextDriver()
	msg.State = nil
	s.recycle(x)
	return err
}

// await waits until a message is done. If the context of a patient receive ends while its data is on
// the way, await goes on for transport.PatientFor. The caller holds s.mu.
func (s *messenger) await(w *wait.Waiter, x *msgState) error {
	var ended error // of the context
	for {
		switch {
		case x.done:
			return x.err
		case x.peer != nil && x.peer.err != nil:
			return x.peer.err
		case ended != nil && !x.cleared:
			return ended
		case w.Stopped():
			return wait.ErrStopped // before the first round: a Batch may have many messages
		}
		err := s.advance(w, x)
		switch {
		case err == nil || x.done:
		case ended != nil && errors.Is(err, wait.ErrTimeout):
			return ended
		case ended != nil || !x.cleared || !x.msg.Patient || !isContextError(err):
			return err
		default:
			ended = err
			w.Linger(transport.PatientFor)
		}
	}
}

// isContextError reports whether err is the error of a context.
func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// advance accepts a matched receive, or waits as the driver or sleeping until the message has changed.
// The caller holds s.mu.
func (s *messenger) advance(w *wait.Waiter, x *msgState) error {
	switch {
	case x.offer != nil:
		return s.accept(w, x)
	case s.driving:
		return s.standBy(w, x)
	}
	s.driving = true
	defer func() { s.driving = false }()
	return s.drive(w, x)
}

// close fails all messages, and later ones.
func (s *messenger) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closedErr = errMeshClosed
	s.self.fail(errMeshClosed)
	for _, p := range s.peers {
		if p != nil {
			p.fail(errMeshClosed)
		}
	}
	s.failReceives(errMeshClosed, func(*match.Receive) bool { return true })
	s.wakeDriver()
}
