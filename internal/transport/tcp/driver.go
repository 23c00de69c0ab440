package tcp

import (
	"time"

	"github.com/tutti-go/tutti/internal/wait"
	"golang.org/x/sys/unix"
)

// sweepEvery is how many rounds of the driver there are between two in which it reads from all peers.
const sweepEvery = 1024

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
		if x.done || x.offer != nil {
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

// pollPeers reads from and writes to every active peer once, and every peer in every sweepEvery-th
// round, because a peer without open messages may send a note. It reports whether anything moved.
func (s *messenger) pollPeers() (moved bool) {
	if s.rounds++; s.rounds%sweepEvery == 0 {
		for _, p := range s.peers {
			if p != nil {
				s.list(p)
			}
		}
	}
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
		if s.idle(p) {
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

// idle reports whether the driver need not read from a peer in each round. The caller holds s.mu.
func (s *messenger) idle(p *peerMessages) bool {
	switch {
	case p.err != nil:
		return true
	case p.open > 0 || s.anyWaiting > 0:
		return false
	}
	return p.link == nil || !p.hasOutput()
}

// sleep waits in poll(2) for the sockets of all peers, with s.mu released. A peer whose socket is
// ready becomes active.
func (s *messenger) sleep() {
	s.fds = append(s.fds[:0], unix.PollFd{Fd: int32(s.wakeup.fd), Events: unix.POLLIN})
	s.polled = s.polled[:0]
	for _, p := range s.peers {
		if p == nil || p.link == nil || p.err != nil {
			continue
		}
		events := int16(unix.POLLIN)
		if p.hasOutput() {
			events |= unix.POLLOUT
		}
		s.fds = append(s.fds, unix.PollFd{Fd: int32(p.link.fd), Events: events})
		s.polled = append(s.polled, p)
	}
	s.sleeping = true
	s.mu.Unlock()
	ask := s.poll.sleep(s.fds)
	s.mu.Lock()
	s.sleeping = false
	if s.fds[0].Revents != 0 {
		s.wakeup.reset()
	}
	for i, p := range s.polled {
		if ask && p.listed && p.err == nil && hostSilent(p.link.fd, p.link.deadAfter) {
			p.fail(p.link.lost(unix.ETIMEDOUT))
		}
		if s.fds[1+i].Revents != 0 {
			s.list(p)
		}
	}
}

// wakeDriver makes a sleeping driver poll again. The caller holds s.mu.
func (s *messenger) wakeDriver() {
	if s.sleeping {
		s.wakeup.signal()
	}
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
