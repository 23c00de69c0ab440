package tcp

import (
	"fmt"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
	"golang.org/x/sys/unix"
)

// Exchange writes and reads in turn on the calling goroutine until both frames are complete, holding
// m.exchangeMu. The end of w, a lost peer or Close ends it with an error; the frames may then be partly
// moved, and the mesh can only be closed.
func (m *Mesh) Exchange(w *wait.Waiter, out, in *transport.Frame) error {
	m.exchangeMu.Lock()
	defer m.exchangeMu.Unlock()
	x := &m.exchange
	x.out, x.in, x.broken = nil, nil, nil
	if out != nil {
		l, err := m.frameLink(w, out.Peer)
		if err != nil {
			return err
		}
		l.sent++
		h := header{kind: kindFrame, length: len(out.Body), id: l.sent}
		if m.l.opts.Verify {
			h.sum = checksum(&out.Head, out.Body)
		}
		l.out.start(h, &out.Head, out.Body)
		x.out = l
	}
	if in != nil {
		l, err := m.frameLink(w, in.Peer)
		if err != nil {
			return err
		}
		l.in.start(in.Body)
		x.in = l
	}
	return x.run(w, in)
}

// frameLink returns the link for frames with a peer, and waits until it is connected.
func (m *Mesh) frameLink(w *wait.Waiter, peer int) (*link, error) {
	if peer < 0 || peer >= m.size || peer == m.rank {
		return nil, fmt.Errorf("tcp: rank %d cannot exchange frames with rank %d of %d", m.rank, peer, m.size)
	}
	s := &m.slots[laneFrames][peer]
	if l := s.link.Load(); l != nil {
		return l, nil
	}
	return m.awaitLink(w, s)
}

// An exchange is the state of Exchange. It is kept between calls so that no call allocates.
// Mesh.exchangeMu guards it.
type exchange struct {
	spinPoll
	out, in *link // nil: none, or complete
	broken  error // why out's frame could not be sent
	fds     [2]unix.PollFd
}

// run moves both frames until they are complete. After an error a frame may be partly moved, and the
// mesh can only be closed. A peer whose host is silent is lost. The caller holds Mesh.exchangeMu.
func (x *exchange) run(w *wait.Waiter, in *transport.Frame) error {
	x.begin()
	for {
		var moved bool
		if x.out != nil {
			did, done, err := x.out.send()
			if err != nil && x.out != x.in {
				return x.out.lost(err)
			}
			if err != nil {
				// A goodbye that the peer sent before may explain it.
				x.broken = &transport.LostError{Peer: x.out.peer, Err: err}
			}
			if done || err != nil {
				x.out = nil
			}
			moved = did
		}
		if x.in != nil {
			did, done, err := x.in.receive(kindFrame, len(in.Body))
			if err != nil {
				return x.in.lost(err)
			}
			if done {
				if err := x.completeReceive(in); err != nil {
					return err
				}
			}
			moved = moved || did
		}
		if x.out == nil && x.in == nil {
			return x.broken
		}
		sleepNow, err := x.afterTry(w, moved)
		if err != nil {
			return err
		}
		if sleepNow && x.sleep(x.pollFDs()) {
			for _, l := range [2]*link{x.out, x.in} {
				if l != nil && hostSilent(l.fd, l.deadAfter) {
					return l.lost(unix.ETIMEDOUT)
				}
			}
		}
	}
}

// completeReceive validates the received frame. A frame of another kind or number is a LostError, another
// length a LengthError. Mesh.exchangeMu is held.
func (x *exchange) completeReceive(in *transport.Frame) error {
	l := x.in
	x.in = nil
	h := &l.in.header
	if h.kind != kindFrame {
		return l.unexpected()
	}
	l.received++
	if h.id != l.received {
		return l.lost(fmt.Errorf("it sent frame %d instead of frame %d", h.id, l.received))
	}
	in.Head = *l.in.headBytes()
	if h.length != len(in.Body) {
		return &transport.LengthError{Peer: l.peer, Want: len(in.Body), Sent: h.length}
	}
	if h.sum != 0 && checksum(&in.Head, in.Body) != h.sum {
		return l.damaged()
	}
	l.in.start(nil)
	return nil
}

// pollFDs returns the descriptors to sleep on, in x.fds. Mesh.exchangeMu is held.
func (x *exchange) pollFDs() []unix.PollFd {
	n := 0
	if x.in != nil {
		x.fds[n] = unix.PollFd{Fd: int32(x.in.fd), Events: unix.POLLIN}
		n++
	}
	if x.out != nil {
		if n == 1 && x.out == x.in {
			x.fds[0].Events |= unix.POLLOUT
		} else {
			x.fds[n] = unix.PollFd{Fd: int32(x.out.fd), Events: unix.POLLOUT}
			n++
		}
	}
	return x.fds[:n]
}
