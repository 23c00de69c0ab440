package shm

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/wait"
)

// States of a message. A receive goes from posted to matched. A send goes from
// posted to reading, while the receiver copies, and to delivered. A send that fails
// goes from posted to cancelled.
const (
	posted = iota
	matched
	reading
	delivered
	cancelled
)

// queueKey identifies the queue of messages from one rank to another.
type queueKey struct{ from, to int }

// A messageQueue holds the sends and receives from one rank to another that are not
// matched yet. At most one of the two lists has messages with a given tag.
type messageQueue struct {
	mu    sync.Mutex // guards sends and recvs
	sends []*engine.Message
	recvs []*engine.Message
}

// queue returns the queue of messages between two ranks, and creates it if
// necessary.
func (g *group) queue(from, to int) *messageQueue {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := queueKey{from, to}
	b := g.queues[key]
	if b == nil {
		b = new(messageQueue)
		g.queues[key] = b
	}
	return b
}

// waiter returns an idle or new waiter for one message.
func (g *group) waiter() *wait.Waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.idleWaiters); n > 0 {
		w := g.idleWaiters[n-1]
		g.idleWaiters = g.idleWaiters[:n-1]
		return w
	}
	return wait.NewWaiter(g.parking)
}

// putWaiter makes w available to other messages.
func (g *group) putWaiter(w *wait.Waiter) {
	w.End()
	g.mu.Lock()
	g.idleWaiters = append(g.idleWaiters, w)
	g.mu.Unlock()
}

// queueOf returns the queue of a message that this rank posts.
func (e *Engine) queueOf(m *engine.Message) *messageQueue {
	if m.Send {
		return e.g.queue(e.rank, m.Peer)
	}
	return e.g.queue(m.Peer, e.rank)
}

// Post matches m with the oldest message of the other side with the same tag, or
// queues m.
func (e *Engine) Post(m *engine.Message) {
	if s := e.g.shared; s != nil {
		s.Messages.Post(m)
		return
	}
	m.State.Store(posted)
	m.Pair = nil
	b := e.queueOf(m)
	b.mu.Lock()
	mine, others := &b.sends, &b.recvs
	if !m.Send {
		mine, others = others, mine
	}
	i := slices.IndexFunc(*others, func(o *engine.Message) bool { return o.Tag == m.Tag })
	if i < 0 {
		*mine = append(*mine, m)
		b.mu.Unlock()
		return
	}
	o := (*others)[i]
	*others = slices.Delete(*others, i, i+1)
	recv, send := m, o
	if m.Send {
		recv, send = o, m
	}
	recv.Pair = send
	recv.State.Store(matched)
	b.mu.Unlock()
	e.g.parking.Wake(&recv.State)
}

// Finish waits until m is delivered. The receiver's Finish copies the data. When
// Finish fails, the group fails and m is removed from its queue.
func (e *Engine) Finish(ctx context.Context, m *engine.Message) error {
	if e.g.shared != nil {
		return e.finishShared(ctx, m)
	}
	w := e.g.waiter()
	defer e.g.putWaiter(w)
	w.Begin(ctx, e.g.opt.Timeout)
	err := ctx.Err()
	if err == nil {
		if m.Send {
			err = e.awaitMessage(w, m, delivered)
		} else {
			err = e.receive(w, m)
		}
	}
	if err == nil {
		return nil
	}
	f := e.g.fail(e.failureOf(ctx, err, m.Op(), m.Seq, func() engine.Facts { return e.awaited(m) }))
	e.cancelMessage(w, m)
	return f
}

// receive waits for the matching send and copies its data.
func (e *Engine) receive(w *wait.Waiter, m *engine.Message) error {
	if err := e.awaitMessage(w, m, matched); err != nil {
		return err
	}
	send := m.Pair
	// From here to delivered the sender does not return, so its memory stays valid.
	// A sender that was cancelled first makes the swap fail.
	if e.g.parking.Stopped() || !send.State.CompareAndSwap(posted, reading) {
		return wait.ErrStopped
	}
	defer e.g.parking.Wake(&send.State)
	defer send.State.Store(delivered)
	if send.Mem.Type != m.Mem.Type || send.Mem.N != m.Mem.N {
		// The failure comes before delivered is stored, so the sender cannot return
		// success.
		return e.g.fail(m.Mismatch(e.rank, uint64(send.Mem.N), send.Mem.Type))
	}
	kernel.Copy(m.Mem.Ptr, send.Mem.Ptr, m.Mem.Bytes())
	return nil
}

// awaitMessage waits until m reaches a state. It returns an error if the peer
// leaves or the group fails.
func (e *Engine) awaitMessage(w *wait.Waiter, m *engine.Message, state uint64) error {
	ok, err := w.AtLeast(&m.State, state, e.g.boards[m.Peer].left())
	if err != nil {
		return err
	}
	if !ok {
		return e.rankLeft(m.Peer, m.Op(), m.Seq)
	}
	if m.Send && e.g.parking.Stopped() {
		return wait.ErrStopped
	}
	return nil
}

// cancelMessage takes back a message that has failed. When it returns, no other
// goroutine reads m.Mem or can match m. A send that is already being copied is
// waited for.
func (e *Engine) cancelMessage(w *wait.Waiter, m *engine.Message) {
	b := e.queueOf(m)
	b.mu.Lock()
	is := func(o *engine.Message) bool { return o == m }
	b.sends = slices.DeleteFunc(b.sends, is)
	b.recvs = slices.DeleteFunc(b.recvs, is)
	b.mu.Unlock()
	if m.Send && !m.State.CompareAndSwap(posted, cancelled) {
		w.WaitWhileEqual(&m.State, reading)
	}
}

// finishShared lets the engine for messages finish m. A failure of that engine
// fails this group too.
func (e *Engine) finishShared(ctx context.Context, m *engine.Message) error {
	err := e.g.shared.Messages.Finish(ctx, m)
	if f := (*engine.Failure)(nil); errors.As(err, &f) {
		return e.g.fail(f)
	}
	return err
}

// awaited returns, for an error, what m waits for.
func (e *Engine) awaited(m *engine.Message) engine.Facts {
	b := e.queueOf(m)
	b.mu.Lock()
	defer b.mu.Unlock()
	others := b.recvs
	if !m.Send {
		others = b.sends
	}
	facts := m.Awaited()
	if len(others) > 0 {
		tag := others[0].Tag
		facts.Wait.OtherTag = &tag
	}
	return facts
}
