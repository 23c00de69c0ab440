package tcp

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// calls are the ways to block on rank 1.
var calls = map[string]func(m *Mesh, w *wait.Waiter) error{
	"receive a frame": func(m *Mesh, w *wait.Waiter) error {
		return m.Exchange(w, nil, &transport.Frame{Peer: 1, Body: make([]byte, 100)})
	},
	"send a large frame": func(m *Mesh, w *wait.Waiter) error {
		return m.Exchange(w, &transport.Frame{Peer: 1, Body: make([]byte, 64<<20)}, nil)
	},
	"both": func(m *Mesh, w *wait.Waiter) error {
		return m.Exchange(w, &transport.Frame{Peer: 1, Body: make([]byte, 64<<20)},
			&transport.Frame{Peer: 1, Body: make([]byte, 64<<20)})
	},
	"receive a message": func(m *Mesh, w *wait.Waiter) error {
		x := &transport.Message{Peer: 1, Tag: 3, Body: make([]byte, 100)}
		m.Post(x)
		return m.Finish(w, x)
	},
	"send a message": func(m *Mesh, w *wait.Waiter) error {
		x := &transport.Message{Send: true, Peer: 1, Tag: 3, Body: make([]byte, 64<<20)}
		m.Post(x)
		return m.Finish(w, x)
	},
	"receive from any rank": func(m *Mesh, w *wait.Waiter) error {
		x := &transport.Message{Peer: transport.AnyRank, Tag: 3, Body: make([]byte, 100)}
		m.Post(x)
		return m.Finish(w, x)
	},
	"receive from itself": func(m *Mesh, w *wait.Waiter) error {
		x := &transport.Message{Peer: 0, Tag: 3, Body: make([]byte, 100)}
		m.Post(x)
		return m.Finish(w, x)
	},
}

// TestWaiterEnds ends blocked calls in each way in which a waiter can end. A timer's goroutine cancels the
// context or stops the parking lot; the call must return that error.
func TestWaiterEnds(t *testing.T) {
	for name, call := range calls {
		for _, how := range []string{"cancel", "deadline", "stop", "timeout"} {
			t.Run(name+", "+how, func(t *testing.T) {
				world := newWorld(t, 2, testOptions())
				lot := wait.NewParkingLot(1)
				w := wait.NewWaiter(lot)
				ctx, cancel := context.WithCancel(context.Background())
				timeout := testTimeout
				var want error
				// Long enough that most calls are asleep. The test holds for any timing.
				const soon = 20 * time.Millisecond
				switch how {
				case "cancel":
					want = context.Canceled
					defer time.AfterFunc(soon, cancel).Stop()
				case "deadline":
					want = context.DeadlineExceeded
					ctx, cancel = context.WithTimeout(ctx, soon)
				case "stop":
					want = wait.ErrStopped
					defer time.AfterFunc(soon, lot.Stop).Stop()
				case "timeout":
					want = wait.ErrTimeout
					timeout = soon
				}
				defer cancel()
				w.Begin(ctx, timeout)
				if err := call(world.meshes[0], w); !errors.Is(err, want) {
					t.Errorf("got %v, not %v", err, want)
				}
			})
		}
	}
}

// TestFinishStopped finishes a receive of a group that has failed. It must not poll: a Batch of many messages
// would keep its caller for long.
func TestFinishStopped(t *testing.T) {
	m := newWorld(t, 2, testOptions()).meshes[0]
	lot := wait.NewParkingLot(1)
	w := wait.NewWaiter(lot)
	w.Begin(t.Context(), testTimeout)
	x := &transport.Message{Peer: 1, Tag: 1, Body: make([]byte, 8)}
	m.Post(x)
	lot.Stop()
	if err := m.Finish(w, x); err != wait.ErrStopped || m.messages.rounds != 0 {
		t.Errorf("%v after %d rounds", err, m.messages.rounds)
	}
}

// TestCloseEnds closes rank 1 while a goroutine of rank 0 is blocked on it, or about to be, with and without
// a connection. The call returns a LostError for rank 1 that matches ErrClosed.
func TestCloseEnds(t *testing.T) {
	for name, call := range calls {
		if name == "receive from itself" {
			continue
		}
		for _, connected := range []bool{true, false} {
			for _, early := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, connected: %v, before: %v", name, connected, early), func(t *testing.T) {
					world := newWorld(t, 2, testOptions())
					if connected {
						world.run(t, func(m *Mesh, w *wait.Waiter) error {
							x := newReceive(1-m.Rank(), 0, 1, 10)
							y := newSend(m.Rank(), 1-m.Rank(), 0, 1, 10)
							m.Post(&x.Message)
							m.Post(&y.Message)
							return errors.Join(ring(m, w, []int{4}), finishAll(m, w, []*testMessage{x, y}, false))
						})
					}
					ended := make(chan error, 1)
					go func() {
						if early {
							if err := world.meshes[1].Close(); err != nil {
								t.Error(err)
							}
						}
						ended <- call(world.meshes[0], newWaiter())
					}()
					if !early {
						time.Sleep(time.Millisecond) // the test holds for either order
						if err := world.meshes[1].Close(); err != nil {
							t.Error(err)
						}
					}
					err := <-ended
					var lost *transport.LostError
					if !errors.As(err, &lost) || lost.Peer != 1 || !errors.Is(err, transport.ErrClosed) {
						t.Errorf("got %v", err)
					}
				})
			}
		}
	}
}

// TestOwnClose closes a mesh while a goroutine is blocked in one of its calls. That call and later ones
// return errMeshClosed; a second Close returns nil.
func TestOwnClose(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			world := newWorld(t, 2, testOptions())
			ended := make(chan error, 1)
			go func() { ended <- call(world.meshes[0], newWaiter()) }()
			time.Sleep(time.Millisecond) // the test holds for either order
			if err := world.meshes[0].Close(); err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, errMeshClosed) {
				t.Errorf("got %v", err)
			}
			if err := call(world.meshes[0], newWaiter()); !errors.Is(err, errMeshClosed) {
				t.Errorf("afterwards: %v", err)
			}
			if err := world.meshes[0].Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCloseAtOnce closes a mesh when a goroutine begins to dial a peer. Close must wait for the dial, or
// there is none. The goroutine's call returns errMeshClosed.
func TestCloseAtOnce(t *testing.T) {
	for i := range 50 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			m := newWorld(t, 2, testOptions()).meshes[0]
			ended := make(chan error, 1)
			begun := make(chan struct{})
			go func() {
				close(begun)
				ended <- m.Exchange(newWaiter(), nil, &transport.Frame{Peer: 1})
			}()
			<-begun
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, errMeshClosed) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestCloseDelivers sends, closes, and only then reads on the other side. All data must arrive,
// although the closing side has unread input.
func TestCloseDelivers(t *testing.T) {
	world := newWorld(t, 2, testOptions())
	closed := make(chan struct{})
	world.run(t, func(m *Mesh, w *wait.Waiter) error {
		const frames, size = 20, 1000
		if m.Rank() == 0 {
			for step := range frames {
				f := &transport.Frame{Peer: 1, Body: make([]byte, size)}
				fill(f.Body, 0, 1, step)
				if err := m.Exchange(w, f, nil); err != nil {
					return err
				}
			}
			err := m.Leave(&transport.Head{0: 7, transport.HeadBytes - 1: 9})
			close(closed)
			return err
		}
		if err := m.Exchange(w, &transport.Frame{Peer: 0, Body: make([]byte, 10)}, nil); err != nil {
			return err
		}
		<-closed
		for step := range frames {
			f := &transport.Frame{Peer: 0, Body: make([]byte, size)}
			if err := m.Exchange(w, nil, f); err != nil {
				return fmt.Errorf("frame %d: %w", step, err)
			}
			if err := checkBody(f.Body, 0, 1, step); err != nil {
				return err
			}
		}
		err := m.Exchange(w, nil, &transport.Frame{Peer: 0})
		bye := (*transport.Goodbye)(nil)
		if !errors.Is(err, transport.ErrClosed) || !errors.As(err, &bye) || bye.Why[0] != 7 || bye.Why[transport.HeadBytes-1] != 9 {
			return fmt.Errorf("after the last frame: %v", err)
		}
		return nil
	})
}

// TestKill kills a child in the middle of a frame. The receiver returns a LostError at once, without
// ErrClosed, and so does a message on a new connection.
func TestKill(t *testing.T) {
	m, children := startChildren(t, 2, "hold")
	w := newWaiter()
	if err := m.Exchange(w, nil, &transport.Frame{Peer: 1, Body: make([]byte, 10)}); err != nil {
		t.Fatal(err)
	}
	children[0].line(t)
	if err := children[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = children[0].cmd.Wait()
	err := m.Exchange(w, nil, &transport.Frame{Peer: 1, Body: make([]byte, 256<<20)})
	var lost *transport.LostError
	if !errors.As(err, &lost) || lost.Peer != 1 || errors.Is(err, transport.ErrClosed) {
		t.Errorf("got %v", err)
	}
	// A new connection fails as well.
	x := &transport.Message{Send: true, Peer: 1, Body: make([]byte, 10)}
	m.Post(x)
	if err := m.Finish(w, x); !errors.As(err, &lost) || errors.Is(err, transport.ErrClosed) {
		t.Errorf("a message: %v", err)
	}
}

// TestWithdraw withdraws messages at every stage, by a waiter whose context has ended, while other messages
// continue. Receiving a withdrawn message returns errWithdrawn, and later messages arrive. given orders the
// ranks' goroutines.
func TestWithdraw(t *testing.T) {
	world := newWorld(t, 2, testOptions())
	given := make(chan struct{})
	world.run(t, func(m *Mesh, w *wait.Waiter) error {
		me, peer := m.Rank(), 1-m.Rank()
		stopped := wait.NewWaiter(wait.NewParkingLot(1))
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		stopped.Begin(gone, 0)
		giveUp := func(x *testMessage) error {
			m.Post(&x.Message)
			if err := m.Finish(stopped, &x.Message); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("giving up: %v", err)
			}
			return nil
		}
		// tag 9 is never withdrawn
		undisturbed := func() error {
			in, out := newReceive(peer, 9, 5, 3<<20), newSend(me, peer, 9, 5, 3<<20)
			m.Post(&in.Message)
			m.Post(&out.Message)
			return finishAll(m, w, []*testMessage{in, out}, false)
		}
		if err := undisturbed(); err != nil {
			return err
		}
		// Rank 0 withdraws an announced send, and a receive.
		if me == 0 {
			if err := errors.Join(giveUp(newSend(me, peer, 1, 1, 1000)), giveUp(newReceive(peer, 2, 1, 1000))); err != nil {
				return err
			}
			close(given)
		}
		<-given
		if err := undisturbed(); err != nil {
			return err
		}
		if me == 1 {
			x := newReceive(peer, 1, 1, 1000)
			m.Post(&x.Message)
			err := m.Finish(w, &x.Message)
			if !errors.Is(err, errWithdrawn) {
				return fmt.Errorf("receiving what was given up: %v", err)
			}
			y := newSend(me, peer, 4, 6, 1000)
			m.Post(&y.Message)
			return m.Finish(w, &y.Message)
		}
		y := newReceive(peer, 4, 6, 1000)
		m.Post(&y.Message)
		return finishAll(m, w, []*testMessage{y}, false)
	})
}

// TestWithdrawMidTransfer withdraws a message on either side while its data is being sent. The
// receiver's memory must not be written afterwards, and the other side must not take the partial
// data for the whole.
func TestWithdrawMidTransfer(t *testing.T) {
	for _, sender := range []bool{true, false} {
		t.Run(fmt.Sprint("the sender: ", sender), func(t *testing.T) {
			world := newWorld(t, 2, testOptions())
			const size = 64 << 20
			out := &transport.Message{Send: true, Peer: 1, Body: make([]byte, size)}
			in := &transport.Message{Peer: 0, Body: make([]byte, size)}
			world.meshes[0].Post(out)
			world.meshes[1].Post(in)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			given, other := world.meshes[0], world.meshes[1]
			mine, theirs := out, in
			if !sender {
				given, other, mine, theirs = other, given, theirs, mine
			}
			x := mine.State.(*msgState)
			ended := make(chan error, 1)
			go func() {
				w := wait.NewWaiter(wait.NewParkingLot(1))
				w.Begin(ctx, testTimeout)
				ended <- given.Finish(w, mine)
			}()
			lot := wait.NewParkingLot(1)
			done := make(chan error, 1)
			go func() {
				w := wait.NewWaiter(lot)
				w.Begin(context.Background(), testTimeout)
				done <- other.Finish(w, theirs)
			}()
			// Wait until a part of the body has moved.
			for begun := false; !begun && len(ended) == 0; runtime.Gosched() {
				given.messages.mu.Lock()
				begun = x.moved > 0
				given.messages.mu.Unlock()
			}
			cancel()
			err := <-ended
			if err == nil {
				t.Log("the message was faster")
				lot.Stop()
				<-done
				return
			}
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if sender {
				var lost *transport.LostError
				if err := <-done; !errors.As(err, &lost) {
					t.Errorf("the receiver: %v", err)
				}
				return
			}
			// No receiver reads any more. The sender waits until it is stopped or has sent
			// everything.
			lot.Stop()
			if err := <-done; err != nil && !errors.Is(err, wait.ErrStopped) {
				t.Errorf("the sender: %v", err)
			}
		})
	}
}
