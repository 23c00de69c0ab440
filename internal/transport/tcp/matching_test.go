package tcp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// newEnded returns a waiter whose context has ended.
func newEnded() *wait.Waiter {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w := wait.NewWaiter(wait.NewParkingLot(1))
	w.Begin(ctx, 0)
	return w
}

// finishEach finishes messages in goroutines of their own. The function it returns waits for them and
// returns their errors.
func finishEach(m *Mesh, list ...*testMessage) func() error {
	ended := make(chan error, len(list))
	for _, x := range list {
		go func() {
			err := m.Finish(newWaiter(), &x.Message)
			if err == nil {
				err = x.check(m.Rank())
			}
			ended <- err
		}()
	}
	return func() error {
		var all error
		for range list {
			all = errors.Join(all, <-ended)
		}
		return all
	}
}

// together calls the functions, such as the results of finishEach, in order. It joins their errors.
func together(list ...func() error) error {
	var all error
	for _, f := range list {
		all = errors.Join(all, f())
	}
	return all
}

// poll drives m until f, which is called with the messenger's lock held, returns true.
func poll(t *testing.T, m *Mesh, f func(s *messenger) bool) {
	t.Helper()
	end := time.Now().Add(testTimeout)
	x := newReceive(m.Rank(), 1<<20, 0, 0) // nothing is sent to it
	m.Post(&x.Message)
	defer func() { _ = m.Finish(newEnded(), &x.Message) }()
	s := &m.messages
	for time.Now().Before(end) {
		s.mu.Lock()
		if !s.driving {
			s.pollPeers()
		}
		ok := f(s)
		s.mu.Unlock()
		if ok {
			return
		}
		time.Sleep(time.Millisecond / 10)
	}
	t.Error("what the test waits for does not happen")
}

// awaitAnnounced waits until n announcements wait in the inbox of m.
func awaitAnnounced(t *testing.T, m *Mesh, n int) {
	t.Helper()
	poll(t, m, func(s *messenger) bool {
		sum := s.self.numAnnounced
		for _, p := range s.peers {
			if p != nil {
				sum += p.numAnnounced
			}
		}
		return sum == n
	})
}

// connect connects all ranks with one another.
func (w *world) connect(t *testing.T) {
	t.Helper()
	w.run(t, func(m *Mesh, wt *wait.Waiter) error {
		var list []*testMessage
		for peer := range m.Size() {
			list = append(list, newReceive(peer, 99, 1, 1), newSend(m.Rank(), peer, 99, 1, 1))
		}
		for _, x := range list {
			m.Post(&x.Message)
		}
		return finishAll(m, wt, list, false)
	})
}

// TestAnyRankOrder announces messages of several ranks one after the other. Receives from any rank take
// them in that order, and a receive from one rank takes that rank's first.
func TestAnyRankOrder(t *testing.T) {
	world := newWorld(t, 4, testOptions())
	m := world.meshes[0]
	var waits []func() error
	for i, from := range []int{2, 0, 1, 2, 3, 1, 0} {
		x := newSend(from, 0, 7, i, 10*i)
		world.meshes[from].Post(&x.Message)
		waits = append(waits, finishEach(world.meshes[from], x))
		if i == 0 { // the first receive connects the ranks
			y := newReceive(transport.AnyRank, 8, 0, 0)
			m.Post(&y.Message)
			defer func() { _ = m.Finish(newEnded(), &y.Message) }()
		}
		awaitAnnounced(t, m, i+1)
	}
	w := newWaiter()
	receive := func(from, step int) {
		t.Helper()
		x := newReceive(from, 7, step, 10*step)
		m.Post(&x.Message)
		if err := errors.Join(m.Finish(w, &x.Message), x.check(0)); err != nil {
			t.Fatal(err)
		}
	}
	receive(transport.AnyRank, 0)
	receive(1, 2)
	for _, step := range []int{1, 3, 4, 5, 6} {
		receive(transport.AnyRank, step)
	}
	for _, f := range waits {
		if err := f(); err != nil {
			t.Error(err)
		}
	}
}

// TestAnyRankFair lets three ranks send without a pause to a rank that receives from any rank. In each
// part of the received messages there must be messages of all ranks.
func TestAnyRankFair(t *testing.T) {
	const count, part = 3000, 600
	world := newWorld(t, 4, testOptions())
	world.connect(t)
	stop := make(chan struct{})
	world.run(t, func(m *Mesh, w *wait.Waiter) error {
		if m.Rank() != 0 {
			for i := 0; ; i++ {
				x := newSend(m.Rank(), 0, 5, i, 20)
				m.Post(&x.Message)
				lot := wait.NewParkingLot(1)
				w := wait.NewWaiter(lot)
				w.Begin(context.Background(), testTimeout)
				ended := make(chan error, 1)
				go func() { ended <- m.Finish(w, &x.Message) }()
				select {
				case err := <-ended:
					if err != nil {
						return err
					}
				case <-stop:
					lot.Stop()
					if err := <-ended; err != nil && !errors.Is(err, wait.ErrStopped) {
						return err
					}
					return nil
				}
			}
		}
		defer close(stop)
		var next, seen [4]int
		for i := range count {
			x := newReceive(transport.AnyRank, 5, 0, 20)
			m.Post(&x.Message)
			if err := m.Finish(w, &x.Message); err != nil {
				return err
			}
			x.step = next[x.From]
			next[x.From]++
			seen[x.From]++
			if err := x.check(0); err != nil {
				return err
			}
			if i%part == part-1 {
				if seen[1] == 0 || seen[2] == 0 || seen[3] == 0 {
					return fmt.Errorf("up to message %d: %v", i, seen)
				}
				seen = [4]int{}
			}
		}
		return nil
	})
}

// TestShorterMessage receives messages that are shorter than the receive, from another rank and from
// this one. The rest of the memory is not changed.
func TestShorterMessage(t *testing.T) {
	world := newWorld(t, 2, testOptions())
	for _, from := range []int{0, 1} {
		for step, n := range []int{0, 1, 100, 3 << 20} {
			x, y := newSend(from, 0, 1, step, n), newReceive(transport.AnyRank, 1, step, n+50)
			for i := range y.Body {
				y.Body[i] = 0xee
			}
			world.meshes[from].Post(&x.Message)
			world.meshes[0].Post(&y.Message)
			sent := finishEach(world.meshes[from], x)
			if err := world.meshes[0].Finish(newWaiter(), &y.Message); err != nil {
				t.Fatal(err)
			}
			rest := y.Body[n:]
			y.Body = y.Body[:n]
			if err := errors.Join(sent(), y.check(0)); err != nil {
				t.Error(err)
			}
			for _, b := range rest {
				if b != 0xee {
					t.Fatalf("a message of %d bytes from %d has changed the memory behind it", n, from)
				}
			}
		}
	}
}

// TestAcceptAllocates accepts messages whose length is not known before.
func TestAcceptAllocates(t *testing.T) {
	world := newWorld(t, 2, testOptions())
	for _, from := range []int{0, 1} {
		x, y := newSend(from, 0, 1, 3, 100_000), newReceive(from, 1, 3, 0)
		y.Owner = acceptor(func(m *transport.Message) error {
			m.Body = make([]byte, m.Len)
			return nil
		})
		world.meshes[from].Post(&x.Message)
		world.meshes[0].Post(&y.Message)
		if err := together(finishEach(world.meshes[0], y), finishEach(world.meshes[from], x)); err != nil {
			t.Error(err)
		}
	}
}

// TestRefuse refuses a message with and without another waiting receive. The other receive gets the
// message before the later message.
func TestRefuse(t *testing.T) {
	refusal := errors.New("no")
	for _, from := range []int{0, 1} {
		for _, any := range []bool{false, true} {
			for _, waiting := range []bool{false, true} {
				t.Run(fmt.Sprintf("from %d, any rank: %v, with another receive: %v", from, any, waiting), func(t *testing.T) {
					world := newWorld(t, 2, testOptions())
					m, peer := world.meshes[0], from
					if any {
						peer = transport.AnyRank
					}
					first, second := newSend(from, 0, 1, 1, 50), newSend(from, 0, 1, 2, 60)
					world.meshes[from].Post(&first.Message)
					sent := []func() error{finishEach(world.meshes[from], first)}
					sendSecond := func() {
						world.meshes[from].Post(&second.Message)
						sent = append(sent, finishEach(world.meshes[from], second))
					}
					if !waiting {
						sendSecond()
					}
					refused, taken := newReceive(peer, 1, 1, 50), newReceive(peer, 1, 1, 50)
					refused.Owner = acceptor(func(m *transport.Message) error {
						if m.Len != 50 || m.Kind != 1 || m.From != from {
							t.Errorf("asked for %d bytes of kind %d from %d", m.Len, m.Kind, m.From)
						}
						return refusal
					})
					m.Post(&refused.Message)
					ended := func() error { return nil }
					if waiting {
						m.Post(&taken.Message)
						ended = finishEach(m, taken)
					}
					if err := m.Finish(newWaiter(), &refused.Message); !errors.Is(err, refusal) || !refused.Untaken || refused.Matched.Load() {
						t.Errorf("got %v, untaken: %v, matched: %v", err, refused.Untaken, refused.Matched.Load())
					}
					if waiting {
						sendSecond()
					} else {
						m.Post(&taken.Message)
						ended = finishEach(m, taken)
					}
					last := newReceive(peer, 1, 2, 60)
					m.Post(&last.Message)
					if err := together(append(sent, ended, finishEach(m, last))...); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// TestReceiveTooLong receives a message into memory that is too short. The sender waits until a receive
// has room for it.
func TestReceiveTooLong(t *testing.T) {
	world := newWorld(t, 2, testOptions())
	x, short, long := newSend(1, 0, 1, 1, 50), newReceive(1, 1, 1, 49), newReceive(1, 1, 1, 50)
	world.meshes[1].Post(&x.Message)
	sent := finishEach(world.meshes[1], x)
	world.meshes[0].Post(&short.Message)
	var wrong *transport.LengthError
	if err := world.meshes[0].Finish(newWaiter(), &short.Message); !errors.As(err, &wrong) || wrong.Want != 49 || wrong.Sent != 50 || !short.Untaken {
		t.Errorf("got %v, untaken: %v", err, short.Untaken)
	}
	world.meshes[0].Post(&long.Message)
	if err := together(finishEach(world.meshes[0], long), sent); err != nil {
		t.Error(err)
	}
}

// TestMatched checks Message.Matched of both sides.
func TestMatched(t *testing.T) {
	world := newWorld(t, 2, testOptions())
	x, y := newSend(1, 0, 1, 1, 50), newReceive(transport.AnyRank, 1, 1, 50)
	world.meshes[1].Post(&x.Message)
	sent := finishEach(world.meshes[1], x)
	world.meshes[0].Post(&y.Message)
	poll(t, world.meshes[0], func(*messenger) bool { return y.Matched.Load() })
	if x.Matched.Load() {
		t.Error("a send is matched that is not cleared")
	}
	if err := together(finishEach(world.meshes[0], y), sent); err != nil {
		t.Error(err)
	}
	if !x.Matched.Load() || !y.Matched.Load() {
		t.Error("a delivered message is not matched")
	}
}
