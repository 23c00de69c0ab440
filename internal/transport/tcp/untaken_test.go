package tcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// eachReceive runs f for a receive from another rank, from any rank and from this rank itself.
func eachReceive(t *testing.T, f func(t *testing.T, world *world, from, peer int)) {
	for _, c := range []struct {
		name       string
		from, peer int
	}{
		{"another rank", 1, 1},
		{"any rank", 1, transport.AnyRank},
		{"itself", 0, 0},
		{"any rank, from itself", 0, transport.AnyRank},
	} {
		t.Run(c.name, func(t *testing.T) {
			world := newWorld(t, 2, testOptions())
			world.connect(t)
			f(t, world, c.from, c.peer)
		})
	}
}

// TestCancelUnmatched cancels a receive without a message. The next receive gets the message.
func TestCancelUnmatched(t *testing.T) {
	eachReceive(t, func(t *testing.T, world *world, from, peer int) {
		m := world.meshes[0]
		x := newReceive(peer, 1, 0, 10)
		m.Post(&x.Message)
		if err := m.Finish(newEnded(), &x.Message); !errors.Is(err, context.Canceled) || !x.Untaken {
			t.Fatalf("got %v, untaken: %v", err, x.Untaken)
		}
		y, z := newReceive(peer, 1, 1, 10), newSend(from, 0, 1, 1, 10)
		m.Post(&y.Message)
		world.meshes[from].Post(&z.Message)
		if err := together(finishEach(m, y), finishEach(world.meshes[from], z)); err != nil {
			t.Error(err)
		}
	})
}

// TestCancelMatched cancels a receive that is matched and not cleared. The message waits for the next
// receive, before a later message.
func TestCancelMatched(t *testing.T) {
	eachReceive(t, func(t *testing.T, world *world, from, peer int) {
		m := world.meshes[0]
		x := newReceive(peer, 1, 0, 10)
		x.Owner = acceptor(func(*transport.Message) error {
			t.Error("accepted after the end of the context")
			return nil
		})
		m.Post(&x.Message)
		first, second := newSend(from, 0, 1, 1, 10), newSend(from, 0, 1, 2, 10)
		world.meshes[from].Post(&first.Message)
		world.meshes[from].Post(&second.Message)
		sent := finishEach(world.meshes[from], first, second)
		awaitAnnounced(t, m, 1)
		if !x.Matched.Load() {
			t.Fatal("the receive is not matched")
		}
		if err := m.Finish(newEnded(), &x.Message); !errors.Is(err, context.Canceled) || !x.Untaken || x.Matched.Load() {
			t.Fatalf("got %v, untaken: %v, matched: %v", err, x.Untaken, x.Matched.Load())
		}
		for step := 1; step <= 2; step++ {
			y := newReceive(peer, 1, step, 10)
			m.Post(&y.Message)
			if err := finishEach(m, y)(); err != nil {
				t.Error(err)
			}
		}
		if err := sent(); err != nil {
			t.Error(err)
		}
	})
}

// TestCancelCleared cancels a receive while its data is on the way. A patient receive gets the data; the
// data of another one is discarded, and the next message arrives.
func TestCancelCleared(t *testing.T) {
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprint("patient: ", patient), func(t *testing.T) {
			world := newWorld(t, 2, testOptions())
			world.connect(t)
			m, other := world.meshes[0], world.meshes[1]
			x, y := newReceive(transport.AnyRank, 1, 1, 1000), newSend(1, 0, 1, 1, 1000)
			x.Patient = patient
			ctx, cancel := context.WithCancel(t.Context())
			x.Owner = acceptor(func(*transport.Message) error {
				cancel() // the sender is cleared next
				return nil
			})
			m.Post(&x.Message)
			other.Post(&y.Message)
			received := make(chan error, 1)
			go func() {
				w := wait.NewWaiter(wait.NewParkingLot(1))
				w.Begin(ctx, 0)
				received <- m.Finish(w, &x.Message)
			}()
			<-ctx.Done()
			if patient {
				// The receive has seen the end of its context when it has checked it twice.
				time.Sleep(3 * maxSleep) // the test holds for any timing
				if err := together(finishEach(other, y), func() error { return errors.Join(<-received, x.check(0)) }); err != nil {
					t.Error(err)
				}
				return
			}
			if err := <-received; !errors.Is(err, context.Canceled) || x.Untaken {
				t.Fatalf("got %v, untaken: %v", err, x.Untaken)
			}
			next, send := newReceive(1, 1, 2, 10), newSend(1, 0, 1, 2, 10)
			m.Post(&next.Message)
			other.Post(&send.Message)
			if err := together(finishEach(other, y), finishEach(m, next), finishEach(other, send)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCancelRace cancels receives while messages arrive, a third of them before Finish and the others at
// a random time. No message is lost, and the order is kept.
func TestCancelRace(t *testing.T) {
	const receives = 10_000
	for _, peer := range []int{1, transport.AnyRank} {
		t.Run(fmt.Sprint("from ", peer), func(t *testing.T) {
			world := newWorld(t, 2, testOptions())
			world.connect(t)
			stop := make(chan struct{})
			world.run(t, func(m *Mesh, w *wait.Waiter) error {
				if m.Rank() == 1 {
					x := newSend(1, 0, 1, 0, 100)
					for i := 0; ; i++ {
						x.Tag = 1
						select {
						case <-stop:
							x.Tag = 2
						default:
						}
						x.Kind = uint8(i)
						fill(x.Body, 1, 0, i)
						m.Post(&x.Message)
						if err := m.Finish(w, &x.Message); err != nil || x.Tag == 2 {
							return err
						}
					}
				}
				// The sender has a message outstanding at any time, so the last receives do not wait.
				arrived, canceled := 0, 0
				for i := range receives {
					ctx, cancel := context.WithCancel(context.Background())
					x := newReceive(peer, 1, arrived, 100)
					x.Patient = true
					m.Post(&x.Message)
					ended := make(chan struct{})
					if i%3 == 0 {
						cancel()
						close(ended)
					} else {
						yields := rand.IntN(10)
						go func() {
							for range yields {
								runtime.Gosched()
							}
							cancel()
							close(ended)
						}()
					}
					w := wait.NewWaiter(wait.NewParkingLot(1))
					w.Begin(ctx, 0)
					err := m.Finish(w, &x.Message)
					<-ended
					switch {
					case err == nil:
						arrived++
						if err := x.check(0); err != nil {
							return err
						}
					case errors.Is(err, context.Canceled) && x.Untaken:
						canceled++
					default:
						return fmt.Errorf("after %d messages: %w, untaken: %v", arrived, err, x.Untaken)
					}
				}
				close(stop)
				if arrived < receives/10 || canceled < receives/4 {
					t.Errorf("only %d messages arrived between %d canceled receives", arrived, canceled)
				}
				// The sender's current message has tag 1 or is the last one.
				last := newReceive(1, 2, 0, 100)
				m.Post(&last.Message)
				for {
					x := newReceive(peer, 1, arrived, 100)
					m.Post(&x.Message)
					poll(t, m, func(*messenger) bool { return x.Matched.Load() || last.Matched.Load() })
					if !x.Matched.Load() {
						_ = m.Finish(newEnded(), &x.Message)
						break
					}
					if err := errors.Join(m.Finish(w, &x.Message), x.check(0)); err != nil {
						return err
					}
					arrived++
				}
				last.step = arrived
				return errors.Join(m.Finish(w, &last.Message), last.check(0))
			})
		})
	}
}

// TestAnyRankLost closes the other ranks one after the other. A receive from any rank fails when the last
// of them is lost, whether or not it had a connection, and so does a later one. Messages of this rank
// to itself continue.
func TestAnyRankLost(t *testing.T) {
	for _, connected := range []bool{true, false} {
		t.Run(fmt.Sprint("connected: ", connected), func(t *testing.T) {
			world := newWorld(t, 4, testOptions())
			if connected {
				world.connect(t)
			}
			m := world.meshes[0]
			x := newReceive(transport.AnyRank, 1, 1, 10)
			m.Post(&x.Message)
			ended := make(chan error, 1)
			go func() { ended <- m.Finish(newWaiter(), &x.Message) }()
			for _, r := range []int{2, 1, 3} {
				// A message of the next rank still arrives, and a receive from it.
				y, z := newReceive(transport.AnyRank, 2, 1, 10), newSend(r, 0, 2, 1, 10)
				m.Post(&y.Message)
				world.meshes[r].Post(&z.Message)
				if err := together(finishEach(m, y), finishEach(world.meshes[r], z)); err != nil {
					t.Fatal(err)
				}
				select {
				case err := <-ended:
					t.Fatalf("before rank %d is closed: %v", r, err)
				default:
				}
				if err := world.meshes[r].Close(); err != nil {
					t.Error(err)
				}
			}
			var lost *transport.LostError
			if err := <-ended; !errors.As(err, &lost) || !errors.Is(err, transport.ErrClosed) || !x.Untaken {
				t.Errorf("got %v, untaken: %v", err, x.Untaken)
			}
			again := newReceive(transport.AnyRank, 1, 1, 10)
			m.Post(&again.Message)
			if err := m.Finish(newWaiter(), &again.Message); !errors.As(err, &lost) {
				t.Errorf("afterwards: %v", err)
			}
			in, out := newReceive(transport.AnyRank, 1, 1, 10), newSend(0, 0, 1, 1, 10)
			m.Post(&out.Message)
			m.Post(&in.Message)
			if err := together(finishEach(m, in), finishEach(m, out)); err != nil {
				t.Errorf("a message to itself: %v", err)
			}
		})
	}
}

// TestAnyRankSenderLost ends the sender of a receive from any rank after the match, before and after the
// receiver has cleared it. The receive then gets the message of another rank.
func TestAnyRankSenderLost(t *testing.T) {
	for _, cleared := range []bool{false, true} {
		t.Run(fmt.Sprint("cleared: ", cleared), func(t *testing.T) {
			world := newWorld(t, 3, testOptions())
			world.connect(t)
			m := world.meshes[0]
			x, gone, other := newReceive(transport.AnyRank, 1, 2, 100), newSend(1, 0, 1, 1, 100), newSend(2, 0, 1, 2, 100)
			m.Post(&x.Message)
			world.meshes[1].Post(&gone.Message)
			poll(t, m, func(*messenger) bool { return x.Matched.Load() })
			if cleared {
				// The sender does not drive, so the data does not come.
				m.messages.mu.Lock()
				err := m.messages.accept(newWaiter(), x.State.(*msgState))
				m.messages.mu.Unlock()
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := world.meshes[1].Close(); err != nil {
				t.Error(err)
			}
			poll(t, m, func(s *messenger) bool { return s.lost == 1 })
			if x.Matched.Load() {
				t.Error("the receive is still matched")
			}
			world.meshes[2].Post(&other.Message)
			if err := together(finishEach(m, x), finishEach(world.meshes[2], other)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWithdrawnSelf withdraws a send of a rank to itself before and after it is matched.
func TestWithdrawnSelf(t *testing.T) {
	world := newWorld(t, 1, testOptions())
	m := world.meshes[0]
	withdraw := func(x *testMessage) {
		t.Helper()
		if err := m.Finish(newEnded(), &x.Message); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	x, y := newSend(0, 0, 1, 1, 10), newReceive(transport.AnyRank, 1, 2, 10)
	m.Post(&x.Message)
	withdraw(x)
	m.Post(&y.Message)
	if y.Matched.Load() {
		t.Fatal("a withdrawn send is matched")
	}
	m.Post(&x.Message)
	if !y.Matched.Load() {
		t.Fatal("a send is not matched")
	}
	withdraw(x)
	if y.Matched.Load() {
		t.Fatal("a receive from any rank stays matched with a withdrawn send")
	}
	z := newSend(0, 0, 1, 2, 10)
	m.Post(&z.Message)
	if err := together(finishEach(m, y), finishEach(m, z)); err != nil {
		t.Error(err)
	}
	named := newReceive(0, 1, 1, 10)
	m.Post(&named.Message)
	m.Post(&x.Message)
	withdraw(x)
	if err := m.Finish(newWaiter(), &named.Message); !errors.Is(err, errWithdrawn) {
		t.Errorf("a receive of a withdrawn send: %v", err)
	}
}
