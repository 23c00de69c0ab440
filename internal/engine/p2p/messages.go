// Package p2p carries out the messages of a group, Send and Recv, over a transport's message lane.
//
// It checks types and lengths, turns errors of the lane into failures of the group, lets a flexible
// receive end without one, and finds ranks that wait for each other in a cycle. The decisions are
// explained in docs/design/messages.md.
package p2p

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// Options configure the messages of one rank.
type Options struct {
	Rank, Size int
	Lane       transport.Messenger
	ParkingLot *wait.ParkingLot // stopped when the group fails
	// Timeout is how long ranks may wait for each other in a cycle. Zero or less: forever.
	Timeout time.Duration
	// Fail ends the group because of an error of a message, and returns the group's first failure.
	// The error may be a *engine.Failure.
	Fail func(ctx context.Context, err error, m *engine.Message) *engine.Failure
}

// Messages carries out one rank's messages. It implements Post and Finish of engine.Engine.
type Messages struct {
	opt   Options
	every time.Duration // between two calls of a waiting message's notice

	mu      sync.Mutex
	waiting []*pending // messages that have waited for every; guarded by mu
	notes   []note     // received and not handled yet; guarded by mu
	turn    int        // where handleNotes begins; guarded by mu
}

// New returns the messages of one rank. It sets the lane's handler.
func New(opt Options) *Messages {
	s := &Messages{opt: opt, every: noticeEvery}
	if opt.Timeout > 0 {
		s.every = min(noticeEvery, max(opt.Timeout/8, time.Millisecond))
	}
	opt.Lane.Handle(s)
	return s
}

// noticeEvery bounds the time between two calls of a waiting message's notice.
const noticeEvery = 10 * time.Second

// A pending is the state of an engine.Message, which keeps it in Extra. The goroutine that owns the
// Message owns the pending, but for the fields guarded by Messages.mu.
type pending struct {
	s       *Messages
	m       *engine.Message
	t       transport.Message
	w       *wait.Waiter
	open    bool // between Post and Finish
	posted  bool // the lane has the message
	minutes int  // how many minutes the message had waited when OnWait was called

	listed bool          // in Messages.waiting; guarded by Messages.mu
	waited time.Duration // guarded by Messages.mu
}

// Post passes messages to the lane. After the group has failed it does nothing; Finish then
// returns the failure.
func (s *Messages) Post(msgs ...*engine.Message) {
	posted := !s.opt.ParkingLot.Stopped()
	var c chain
	for _, m := range msgs {
		p := s.prepare(m)
		p.posted = posted
		if !m.Send {
			c.add(&p.t)
		}
	}
	// Sends follow. The lane tells their receivers which receives wait.
	for _, m := range msgs {
		if m.Send {
			c.add(&m.Extra.(*pending).t)
		}
	}
	if posted {
		s.opt.Lane.Post(c.first)
	}
}

// A chain is a list of messages that are posted together.
type chain struct{ first, last *transport.Message }

func (c *chain) add(t *transport.Message) {
	if c.first == nil {
		c.first = t
	} else {
		c.last.Next = t
	}
	c.last = t
}

// prepare returns the state of a message that is to be posted.
func (s *Messages) prepare(m *engine.Message) *pending {
	p, ok := m.Extra.(*pending)
	if !ok || p.s != s {
		p = &pending{s: s, w: wait.NewWaiter(s.opt.ParkingLot)}
		p.w.Notice(s.every, p.notice)
		m.Extra = p
	}
	p.m, p.open, p.minutes = m, true, 0
	t := &p.t
	t.Send, t.Peer, t.Tag, t.Kind, t.Body = m.Send, m.Peer, m.Tag, uint8(m.Mem.Type), bytesOf(m.Mem)
	t.Patient, t.Untaken, t.Owner, t.Next = m.Flexible, false, p, nil
	return p
}

// Finish waits until a message is delivered. An error ends the group, unless it is an
// *engine.Unreceived.
func (s *Messages) Finish(ctx context.Context, m *engine.Message) error {
	p, ok := m.Extra.(*pending)
	if !ok || !p.open {
		return s.opt.Fail(ctx, &engine.Failure{
			Kind: engine.ErrInvalid, Op: m.Op(), Seq: m.Seq, Rank: s.opt.Rank,
			Facts: engine.Facts{Text: "the message was not posted"},
		}, m)
	}
	p.open = false
	err := p.finish(ctx)
	p.m, p.t.Body = nil, nil
	if err == nil {
		return nil
	}
	if u := (*engine.Unreceived)(nil); errors.As(err, &u) {
		return err
	}
	return s.opt.Fail(ctx, err, m)
}

// finish waits until the lane has delivered or abandoned the message. It calls the lane's Finish
// even if the group has failed or ctx has ended, because only after that the lane no longer accesses
// the message's memory.
func (p *pending) finish(ctx context.Context) error {
	s, m := p.s, p.m
	ended := ctx.Err()
	if s.opt.ParkingLot.Stopped() {
		ended = wait.ErrStopped
	}
	if !p.posted {
		return ended
	}
	if ended == nil && p.t.Done() {
		m.From, m.Len = p.t.From, p.t.Len/max(m.Mem.Type.Size(), 1)
		return nil
	}
	p.w.RecordFirstWait(m.FirstWait)
	p.w.Begin(ctx, 0)
	err := s.opt.Lane.Finish(p.w, &p.t)
	if errors.Is(err, wait.ErrStopped) && !s.opt.ParkingLot.Stopped() {
		// The sender has withdrawn the message. It ends the group, whose cause follows.
		err = p.w.For(never{})
	}
	p.w.End()
	if p.listed {
		s.unlist(p)
	}
	switch {
	case errors.Is(ended, wait.ErrStopped):
		return ended
	case err == nil && (ended == nil || m.Flexible):
		m.From, m.Len = p.t.From, p.t.Len/max(m.Mem.Type.Size(), 1)
		return nil
	case ended != nil && !m.Flexible:
		return ended
	case p.t.Untaken && m.Flexible:
		return p.untaken(ctx, err)
	}
	return err
}

// never is a condition that does not become true.
type never struct{}

// Ready reports false.
func (never) Ready() bool { return false }

// untaken returns the error of a flexible receive that took no message: an *engine.Unreceived, if no
// other rank is concerned.
func (p *pending) untaken(ctx context.Context, err error) error {
	switch {
	case errors.As(err, new(*engine.Unreceived)):
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		from := "any rank"
		if p.m.Peer != engine.AnyRank {
			from = fmt.Sprintf("rank %d", p.m.Peer)
		}
		what := fmt.Sprintf("no message from %s with tag %d has come", from, p.m.Tag)
		if p.t.OtherTag != nil {
			what += fmt.Sprintf("; one with tag %d waits to be received", *p.t.OtherTag)
		}
		return &engine.Unreceived{Err: &cancelled{what, err}}
	}
	return err
}

// cancelled is the reason of a receive whose context has ended.
type cancelled struct {
	what string
	err  error // the context's
}

func (c *cancelled) Error() string { return c.err.Error() + ": " + c.what }

// Unwrap returns the context's error.
func (c *cancelled) Unwrap() error { return c.err }

// Accept compares a message with the receive that it was matched with. See transport.Handler.
func (s *Messages) Accept(t *transport.Message) error {
	m := t.Owner.(*pending).m
	kind := kernel.DType(t.Kind)
	n := t.Len
	if size := kind.Size(); size > 0 {
		n /= size
	}
	if kind != m.Mem.Type || n != m.Mem.N && !m.Flexible {
		return m.Mismatch(s.opt.Rank, t.From, uint64(n), kind)
	}
	if m.Room != nil {
		if n > m.Limit {
			return &engine.Unreceived{Err: fmt.Errorf("%w: the message from rank %d with tag %d has %d elements, and the limit is %d; "+
				"the message waits for another Recv", engine.ErrInvalid, t.From, t.Tag, n, m.Limit)}
		}
		m.Mem = m.Room(n)
		t.Body = bytesOf(m.Mem)
	}
	if n > m.Mem.N {
		return &engine.Unreceived{Err: fmt.Errorf("%w: the message from rank %d with tag %d has %d elements and the buffer has %d; "+
			"the message waits for a Recv with a larger buffer (RecvSlice allocates one)", engine.ErrInvalid, t.From, t.Tag, n, m.Mem.N)}
	}
	return nil
}

// bytesOf returns the memory of m.
func bytesOf(m engine.Mem) []byte { return unsafe.Slice((*byte)(m.Ptr), m.Bytes()) }
