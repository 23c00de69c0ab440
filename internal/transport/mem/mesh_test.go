package mem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// waiter returns a waiter for one rank whose waits end with ctx.
func waiter(ctx context.Context, m *Mesh) *wait.Waiter {
	w := wait.NewWaiter(m.ParkingLot())
	w.Begin(ctx, 0)
	return w
}

// onAll runs body concurrently for all ranks.
func onAll(t *testing.T, ranks []*Mesh, body func(m *Mesh, w *wait.Waiter) error) {
	t.Helper()
	var wg sync.WaitGroup
	for _, m := range ranks {
		wg.Go(func() {
			if err := body(m, waiter(t.Context(), m)); err != nil {
				t.Errorf("rank %d: %v", m.Rank(), err)
			}
		})
	}
	wg.Wait()
}

// TestFrames checks that frames arrive in order and complete, with and without buffers.
func TestFrames(t *testing.T) {
	for _, held := range []int{-1, 0, 1} {
		t.Run(fmt.Sprintf("frames=%d", held), func(t *testing.T) {
			onAll(t, New(3, Options{Frames: held}), func(m *Mesh, w *wait.Waiter) error {
				next, prev := (m.Rank()+1)%3, (m.Rank()+2)%3
				for i := range byte(100) {
					out := transport.Frame{Peer: next, Head: transport.Head{i}, Body: make([]byte, i)}
					in := transport.Frame{Peer: prev, Body: make([]byte, i)}
					for k := range out.Body {
						out.Body[k] = i
					}
					if err := m.Exchange(w, &out, &in); err != nil {
						return err
					}
					clear(out.Body) // the caller owns it again
					if in.Head[0] != i || i > 0 && in.Body[i-1] != i {
						return fmt.Errorf("frame %d has the head %d and the body %v", i, in.Head[0], in.Body)
					}
				}
				return nil
			})
		})
	}
}

// TestUnbuffered checks that without buffers a frame is sent only when it is received.
func TestUnbuffered(t *testing.T) {
	ranks := New(2, Options{Frames: -1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out := transport.Frame{Peer: 1, Body: []byte{1}}
	if err := ranks[0].Exchange(waiter(ctx, ranks[0]), &out, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody receives, and Exchange returns %v", err)
	}
	in := transport.Frame{Peer: 0, Body: []byte{0}}
	if err := ranks[1].Exchange(waiter(ctx, ranks[1]), nil, &in); !errors.Is(err, context.Canceled) {
		t.Errorf("the frame was taken back, and Exchange returns %v", err)
	}
}

// TestBuffered checks that a connection buffers Options.Frames frames.
func TestBuffered(t *testing.T) {
	ranks := New(2, Options{Frames: 2})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i, want := range []error{nil, nil, context.Canceled} {
		out := transport.Frame{Peer: 1}
		if err := ranks[0].Exchange(waiter(ctx, ranks[0]), &out, nil); !errors.Is(err, want) {
			t.Errorf("frame %d: %v, want %v", i, err, want)
		}
	}
}

func TestWrongLength(t *testing.T) {
	ranks := New(2, Options{})
	out := transport.Frame{Peer: 1, Head: transport.Head{7}, Body: make([]byte, 3)}
	if err := ranks[0].Exchange(waiter(t.Context(), ranks[0]), &out, nil); err != nil {
		t.Fatal(err)
	}
	in := transport.Frame{Peer: 0, Body: make([]byte, 2)}
	err := ranks[1].Exchange(waiter(t.Context(), ranks[1]), nil, &in)
	if e := (*transport.LengthError)(nil); !errors.As(err, &e) || e.Want != 2 || e.Sent != 3 || in.Head[0] != 7 {
		t.Errorf("the error is %v, the head %d", err, in.Head[0])
	}
}

// TestClose checks that frames sent before Close can be received, and that the rank is lost after
// that.
func TestClose(t *testing.T) {
	ranks := New(2, Options{})
	w := waiter(t.Context(), ranks[0])
	out := transport.Frame{Peer: 0, Body: []byte{5}}
	if err := ranks[1].Exchange(waiter(t.Context(), ranks[1]), &out, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := ranks[1].Close(); err != nil {
			t.Fatal(err)
		}
	}
	in := transport.Frame{Peer: 1, Body: []byte{0}}
	if err := ranks[0].Exchange(w, nil, &in); err != nil || in.Body[0] != 5 {
		t.Errorf("received %v: %v", in.Body, err)
	}
	back := transport.Frame{Peer: 1}
	send, recv := transport.Message{Send: true, Peer: 1}, transport.Message{Peer: 1}
	ranks[0].Post(&send)
	ranks[0].Post(&recv)
	for what, err := range map[string]error{
		"a send":     ranks[0].Exchange(w, &back, nil),
		"a receive":  ranks[0].Exchange(w, nil, &in),
		"a message":  ranks[0].Finish(w, &send),
		"a reply":    ranks[0].Finish(w, &recv),
		"an attempt": ranks[0].Exchange(w, &back, &in),
	} {
		if lost := (*transport.LostError)(nil); !errors.As(err, &lost) || lost.Peer != 1 || !errors.Is(err, transport.ErrClosed) {
			t.Errorf("%s of a rank that has left: %v", what, err)
		}
	}
}

// TestFault checks that a fault breaks one connection in both directions.
func TestFault(t *testing.T) {
	errCut := errors.New("cut")
	ranks := New(3, Options{Fault: func(from, to, nth int) error {
		if from == 0 && to == 1 && nth == 1 {
			return errCut
		}
		return nil
	}})
	for i, want := range []error{nil, errCut, errCut} {
		out := transport.Frame{Peer: 1}
		if err := ranks[0].Exchange(waiter(t.Context(), ranks[0]), &out, nil); !errors.Is(err, want) {
			t.Errorf("frame %d: %v, want %v", i, err, want)
		}
	}
	for peer, want := range map[int]error{0: errCut, 2: nil} {
		out := transport.Frame{Peer: peer}
		if err := ranks[1].Exchange(waiter(t.Context(), ranks[1]), &out, nil); !errors.Is(err, want) {
			t.Errorf("to rank %d: %v, want %v", peer, err, want)
		}
	}
}

// TestMessages checks that messages with one tag match in order, whatever the order of Finish.
func TestMessages(t *testing.T) {
	onAll(t, newMeshes(2), func(m *Mesh, w *wait.Waiter) error {
		const n = 30
		var sends, recvs [n]transport.Message
		for i := range n {
			sends[i] = transport.Message{Send: true, Peer: 1 - m.Rank(), Tag: i % 3, Body: []byte{byte(i)}}
			recvs[i] = transport.Message{Peer: 1 - m.Rank(), Tag: i % 3, Body: []byte{0xFF}}
			m.Post(&recvs[i])
			m.Post(&sends[i])
		}
		for i := n - 1; i >= 0; i-- {
			if err := m.Finish(w, &recvs[i]); err != nil {
				return err
			}
			if recvs[i].Body[0] != byte(i) {
				return fmt.Errorf("message %d holds %d", i, recvs[i].Body[0])
			}
		}
		for i := range sends {
			if err := m.Finish(w, &sends[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// handler accepts messages by a function, and keeps notes.
type handler struct {
	accept func(*transport.Message) error
	notes  chan int
}

func (h handler) Accept(m *transport.Message) error {
	if h.accept == nil {
		return nil
	}
	return h.accept(m)
}

func (h handler) Note(from int, _ *transport.Note) { h.notes <- from }

// newMeshes returns the Meshes of n ranks that accept every message.
func newMeshes(n int) []*Mesh {
	ranks := New(n, Options{})
	for _, m := range ranks {
		m.Handle(handler{})
	}
	return ranks
}

// TestRefused checks that a message that a receive refuses goes to the next receive.
func TestRefused(t *testing.T) {
	errNo := errors.New("no, thank you")
	ranks := newMeshes(2)
	refuse := true
	ranks[1].Handle(handler{accept: func(m *transport.Message) error {
		if m.From != 0 || m.Kind != 7 || m.Len != 1 {
			t.Errorf("from %d, kind %d, %d bytes", m.From, m.Kind, m.Len)
		}
		if refuse {
			return errNo
		}
		return nil
	}})
	w := waiter(t.Context(), ranks[1])
	for _, value := range []byte{8, 9} {
		ranks[0].Post(&transport.Message{Send: true, Peer: 1, Kind: 7, Body: []byte{value}})
	}
	recv := transport.Message{Peer: 0, Body: []byte{0}}
	ranks[1].Post(&recv)
	if err := ranks[1].Finish(w, &recv); err != errNo || !recv.Untaken || recv.Matched.Load() {
		t.Errorf("%v, untaken %v", err, recv.Untaken)
	}
	refuse = false
	for _, value := range []byte{8, 9} {
		recv := transport.Message{Peer: transport.AnyRank, Body: []byte{0, 1}}
		ranks[1].Post(&recv)
		if err := ranks[1].Finish(w, &recv); err != nil || recv.Body[0] != value || recv.Body[1] != 1 {
			t.Errorf("%v, received %v", err, recv.Body)
		}
	}
}

// TestRefusedForOther checks that a refused message goes to a receive that was posted later.
func TestRefusedForOther(t *testing.T) {
	errNo := errors.New("no, thank you")
	ranks := newMeshes(2)
	first, second := transport.Message{Peer: 0, Body: []byte{0}}, transport.Message{Peer: 0, Body: []byte{0}}
	ranks[1].Handle(handler{accept: func(m *transport.Message) error {
		if m == &first {
			return errNo
		}
		return nil
	}})
	ranks[1].Post(&first)
	ranks[1].Post(&second)
	ranks[0].Post(&transport.Message{Send: true, Peer: 1, Body: []byte{9}})
	w := waiter(t.Context(), ranks[1])
	if err := ranks[1].Finish(w, &first); err != errNo {
		t.Error(err)
	}
	if err := ranks[1].Finish(w, &second); err != nil || second.Body[0] != 9 {
		t.Errorf("%v, received %v", err, second.Body)
	}
}

// TestCancel cancels receives while their messages are sent. No message may be lost or reordered.
func TestCancel(t *testing.T) {
	const n = 5_000
	ranks := newMeshes(2)
	var side sync.WaitGroup
	side.Go(func() {
		w := waiter(t.Context(), ranks[0])
		for i := range n {
			m := transport.Message{Send: true, Peer: 1, Body: []byte{byte(i), byte(i >> 8)}}
			ranks[0].Post(&m)
			if err := ranks[0].Finish(w, &m); err != nil {
				t.Error(err)
				return
			}
		}
	})
	cancelled := 0
	recv := transport.Message{Body: make([]byte, 2)}
	w := wait.NewWaiter(ranks[1].ParkingLot())
	for i := 0; i < n; {
		ctx, cancel := context.WithCancel(t.Context())
		w.Begin(ctx, time.Minute)
		recv.Peer, recv.Untaken = transport.AnyRank, false
		if i%2 == 0 {
			recv.Peer = 0
		}
		ranks[1].Post(&recv)
		if (i+cancelled)%3 != 0 {
			cancel()
		}
		err := ranks[1].Finish(w, &recv)
		cancel()
		switch {
		case err == nil:
			if got := int(recv.Body[0]) | int(recv.Body[1])<<8; got != i&0xFFFF {
				t.Fatalf("received message %d, want %d", got, i)
			}
			i++
		case errors.Is(err, context.Canceled) && recv.Untaken:
			cancelled++
		default:
			t.Fatal(err)
		}
	}
	side.Wait()
	if cancelled == 0 {
		t.Error("no receive was cancelled")
	}
}

// TestAllGone checks that a receive from any rank fails only when all other ranks are gone.
func TestAllGone(t *testing.T) {
	ranks := newMeshes(3)
	if err := ranks[1].Close(); err != nil {
		t.Fatal(err)
	}
	recv := transport.Message{Peer: transport.AnyRank, Body: []byte{0}}
	ranks[0].Post(&recv)
	ranks[2].Post(&transport.Message{Send: true, Peer: 0, Body: []byte{5}})
	w := waiter(t.Context(), ranks[0])
	if err := ranks[0].Finish(w, &recv); err != nil || recv.From != 2 {
		t.Errorf("from rank %d: %v", recv.From, err)
	}
	ranks[0].Post(&recv)
	var side sync.WaitGroup
	side.Go(func() { _ = ranks[2].Close() })
	if err := ranks[0].Finish(w, &recv); !errors.As(err, new(*transport.LostError)) {
		t.Error(err)
	}
	side.Wait()
}

// TestKeepsNoBody checks that the state of a sent message, which is kept for reuse, does not hold the
// body.
func TestKeepsNoBody(t *testing.T) {
	ranks := newMeshes(2)
	send := transport.Message{Send: true, Peer: 1, Body: []byte{1}}
	recv := transport.Message{Body: []byte{0}}
	ranks[0].Post(&send)
	ranks[1].Post(&recv)
	if err := ranks[1].Finish(waiter(t.Context(), ranks[1]), &recv); err != nil {
		t.Fatal(err)
	}
	if err := ranks[0].Finish(waiter(t.Context(), ranks[0]), &send); err != nil {
		t.Fatal(err)
	}
	if send.State.(*laneMessage).body != nil {
		t.Error("the body is kept")
	}
}

// TestNote checks that a note reaches the handler.
func TestNote(t *testing.T) {
	ranks := newMeshes(2)
	h := handler{notes: make(chan int, 1)}
	ranks[1].Handle(h)
	ranks[0].Notify(1, new(transport.Note))
	if from := <-h.notes; from != 0 {
		t.Errorf("from rank %d", from)
	}
}

// TestWithdrawn checks that a withdrawn message is not read any more.
func TestWithdrawn(t *testing.T) {
	ranks := newMeshes(2)
	send := transport.Message{Send: true, Peer: 1, Body: []byte{9}}
	recv := transport.Message{Peer: 0, Body: []byte{0}}
	ranks[0].Post(&send)
	ranks[1].Post(&recv)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i, m := range []*transport.Message{&send, &recv} {
		if err := ranks[i].Finish(waiter(ctx, ranks[i]), m); !errors.Is(err, context.Canceled) && (m.Send || !errors.Is(err, wait.ErrStopped)) {
			t.Errorf("rank %d gets %v", i, err)
		}
	}
	if recv.Body[0] != 0 {
		t.Error("the message was delivered")
	}
}

func TestSub(t *testing.T) {
	onAll(t, New(5, Options{}), func(m *Mesh, w *wait.Waiter) error {
		members := []int{4, 2, 0}
		if m.Rank()%2 == 1 {
			members = []int{3, 1}
		}
		sub, err := m.Sub(1, members)
		if err != nil {
			return err
		}
		if members[sub.Rank()] != m.Rank() || sub.Size() != len(members) {
			return fmt.Errorf("became rank %d of %d", sub.Rank(), sub.Size())
		}
		next, prev := (sub.Rank()+1)%sub.Size(), (sub.Rank()+sub.Size()-1)%sub.Size()
		out := transport.Frame{Peer: next, Body: []byte{byte(m.Rank())}}
		in := transport.Frame{Peer: prev, Body: []byte{0}}
		sw := waiter(t.Context(), sub)
		if err := sub.Exchange(sw, &out, &in); err != nil {
			return err
		}
		if int(in.Body[0]) != members[prev] {
			return fmt.Errorf("received from rank %d", in.Body[0])
		}
		if _, err := m.Sub(2, []int{5}); err == nil {
			return errors.New("is in a group without it")
		}
		return nil
	})
}
