package tcp

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
	"golang.org/x/sys/unix"
)

var (
	errNotPosted = errors.New("tcp: the message was not posted")
	errWithdrawn = errors.New("it has withdrawn the message")
)

// A messenger is the message lane of a mesh.
//
// One goroutine in Finish, the driver, polls the sockets of all peers until its own message is
// done. Other goroutines in Finish sleep; a driver that returns wakes one of them as the next
// driver. mu is held for everything but sleeping, so that no other goroutine accesses the body of a
// withdrawn message once mu is free.
type messenger struct {
	m    *Mesh
	poll spinPoll // the driver's

	mu        sync.Mutex
	peers     []*peerMessages // by peer; nil: no message yet
	active    []*peerMessages // peers with open messages
	self      peerMessages    // messages of this rank with itself
	waiting   []*msgState     // messages in Finish without the driver
	driving   bool
	sleeping  bool // the driver sleeps in poll(2)
	wakeup    *wakeup
	fds       []unix.PollFd // the driver's buffer for poll(2)
	spare     []*msgState
	closedErr error // set when the mesh is closed
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

// Post announces a message. If the socket takes it, a send, or a receive that matches an
// announcement, notifies the peer at once.
func (m *Mesh) Post(msg *transport.Message) {
	s := &m.messages
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.newState(msg)
	msg.State = x
	if msg.Peer < 0 || msg.Peer >= m.size {
		x.finish(errNotPosted)
		return
	}
	p := s.peer(msg.Peer)
	if err := cmp.Or(p.err, s.closedErr); err != nil {
		x.finish(err)
		return
	}
	s.addOpen(p)
	if msg.Send {
		p.postSend(x)
	} else {
		p.postReceive(x)
	}
	switch {
	case p.self:
	case p.link == nil:
		m.startDial(&m.slots[laneMessages][p.peer])
	default:
		s.writeOut(p)
	}
	s.wakeDriver()
}

// open counts a message as open and makes its peer active. The caller holds s.mu.
func (s *messenger) addOpen(p *peerMessages) {
	p.open++
	if !p.listed && !p.self {
		p.listed = true
		s.active = append(s.active, p)
	}
}

// wakeDriver makes a sleeping driver poll again. The caller holds s.mu.
func (s *messenger) wakeDriver() {
	if s.sleeping {
		s.wakeup.signal()
	}
}

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
		p := s.peer(msg.Peer)
		p.withdraw(x)
		if p.link != nil && p.err == nil {
			s.writeOut(p)
		}
		s.wakeDriver()
	}
	s.wakeNextDriver()
	msg.State = nil
	s.recycle(x)
	return err
}

// await waits until a message is done, as the driver or sleeping. The caller holds s.mu.
func (s *messenger) await(w *wait.Waiter, x *msgState) error {
	for {
		if x.done {
			return x.err
		}
		p := s.peer(x.msg.Peer)
		if p.err != nil {
			return p.err
		}
		if x.matched && !x.cleared {
			if err := p.accept(x); err != nil {
				return err
			}
			if p.link != nil {
				s.writeOut(p)
			}
			s.wakeDriver()
			continue
		}
		var err error
		if s.driving {
			err = s.standBy(w, x)
		} else {
			s.driving = true
			err = s.drive(w, x)
			s.driving = false
		}
		if err != nil {
			return err
		}
	}
}

// standBy sleeps until the message has changed, a driver is needed or maxSleep has passed. The
// caller holds s.mu, which is released meanwhile.
func (s *messenger) standBy(w *wait.Waiter, x *msgState) error {
	s.waiting = append(s.waiting, x)
	s.mu.Unlock()
	x.timer.Reset(maxSleep)
	select {
	case <-x.wake:
	case <-x.timer.C:
	}
	_, err := w.Check()
	s.mu.Lock()
	for i, o := range s.waiting {
		if o == x {
			last := len(s.waiting) - 1
			s.waiting[i] = s.waiting[last]
			s.waiting[last] = nil
			s.waiting = s.waiting[:last]
			break
		}
	}
	return err
}

// wakeNextDriver wakes a goroutine in standBy if there is no driver.
func (s *messenger) wakeNextDriver() {
	if !s.driving && len(s.waiting) > 0 {
		s.waiting[len(s.waiting)-1].signal()
	}
}

// drive polls all active peers until x has changed. The caller holds s.mu.
func (s *messenger) drive(w *wait.Waiter, x *msgState) error {
	if s.wakeup == nil {
		b, err := newWakeup()
		if err != nil {
			return err
		}
		s.wakeup = b
	}
	s.poll.begin()
	for {
		moved := s.pollPeers()
		if x.done || (x.matched && !x.cleared) {
			return nil
		}
		s.mu.Unlock()
		sleepNow, err := s.poll.afterTry(w, moved)
		s.mu.Lock()
		if err != nil {
			return err
		}
		// With many peers a futile round takes longer than a wake-up from poll(2).
		if sleepNow || (!moved && len(s.active) > 8) {
			s.sleep()
		}
	}
}

// pollPeers reads from and writes to every active peer once. It reports whether anything moved.
func (s *messenger) pollPeers() (moved bool) {
	for i := 0; i < len(s.active); i++ {
		p := s.active[i]
		if p.link != nil && p.err == nil {
			did, err := p.readIn()
			if err != nil {
				p.fail(p.link.lost(err))
			}
			moved = did || moved
			if p.err == nil {
				moved = s.writeOut(p) || moved
			}
		}
		if p.open == 0 {
			p.listed = false
			last := len(s.active) - 1
			s.active[i] = s.active[last]
			s.active[last] = nil
			s.active = s.active[:last]
			i--
		}
	}
	return moved
}

// sleep waits in poll(2) for the sockets, with s.mu released.
func (s *messenger) sleep() {
	s.fds = append(s.fds[:0], unix.PollFd{Fd: int32(s.wakeup.fd), Events: unix.POLLIN})
	for _, p := range s.active {
		if p.link == nil || p.err != nil {
			continue
		}
		events := int16(unix.POLLIN)
		if p.hasOutput() {
			events |= unix.POLLOUT
		}
		s.fds = append(s.fds, unix.PollFd{Fd: int32(p.link.fd), Events: events})
	}
	s.sleeping = true
	s.mu.Unlock()
	ask := s.poll.sleep(s.fds)
	s.mu.Lock()
	s.sleeping = false
	if s.fds[0].Revents != 0 {
		s.wakeup.reset()
	}
	for _, p := range s.active {
		if ask && p.link != nil && p.err == nil && hostSilent(p.link.fd, p.link.deadAfter) {
			p.fail(p.link.lost(unix.ETIMEDOUT))
		}
	}
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
	s.wakeDriver()
}

// release closes the wakeup when there is no driver any more.
func (s *messenger) release() {
	for {
		s.mu.Lock()
		if !s.driving {
			if s.wakeup != nil {
				s.wakeup.close()
				s.wakeup = nil
			}
			s.mu.Unlock()
			return
		}
		s.wakeDriver()
		s.mu.Unlock()
		time.Sleep(time.Millisecond / 10)
	}
}
