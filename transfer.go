package tutti

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// A transfer is a message, or a group of messages, under way.
type transfer struct {
	ctx       context.Context
	msgs      []*engine.Message
	logged    uint64        // the log's number of the first message
	completed atomic.Uint64 // how often the transfer has completed: it is reused
	failed    atomic.Uint64 // the use that failed, counted from 1; zero: none. A failed transfer is not reused.
	run       func()        // Comm.finish with this transfer, bound once
	kept      bool          // a Batch keeps the transfer and its messages for its next Run

	// Of a Batch with several receives; they belong to Comm.finish.
	groups []*receiveGroup
	open   atomic.Int64 // groups that are not finished
	wait   *wait.Waiter
}

// transfers holds the state of a Comm's messages.
type transfers struct {
	active atomic.Int64 // transfers and other activities that Close waits for

	// Comm.mu guards the fields below.
	sent   uint64      // number of the last transfer
	posted uint64      // number of the last message, as the log counts them
	free   []*transfer // for reuse
}

// exchange carries out the message a, and for SendRecv also b, which is nil otherwise. It describes the message that was
// received.
func (c *Comm) exchange(ctx context.Context, op string, a, b *side) (Message, error) {
	if ctx == nil {
		return Message{}, c.refuse(op, &cause{kind: ErrInvalid, reason: errNilContext.Error()})
	}
	two := b != nil
	if err := a.check(c); err != nil {
		return Message{}, c.refuse(op, err)
	}
	if two {
		if err := b.check(c); err != nil {
			return Message{}, c.refuse(op, err)
		}
		if err := engine.CheckApart(a.buf.m, b.buf.m); err != nil {
			return Message{}, c.refuse(op, err)
		}
	}
	c.mu.Lock()
	if err := c.acquire(op); err != nil {
		c.mu.Unlock()
		c.awaitReport()
		return Message{}, err
	}
	t := c.newTransfer(ctx)
	t.add(c, a)
	if two {
		t.add(c, b)
	}
	c.post(t)
	c.mu.Unlock()
	return c.finish(t)
}

// A side is the arguments of one message.
type side struct {
	send     bool
	flexible bool // see engine.Message
	peer     int
	tag      int
	buf      Buffer
	room     func(n int) engine.Mem
	limit    int // of room
}

// message returns the engine's form of the side.
func (s *side) message() engine.Message {
	return engine.Message{Send: s.send, Flexible: s.flexible, Peer: s.peer, Tag: s.tag, Mem: s.buf.m, Room: s.room, Limit: s.limit}
}

func (s *side) check(c *Comm) error {
	if engine.IsUsualMessage(s.peer, s.tag, c.size, &s.buf.m) {
		return nil
	}
	if c.device != nil {
		return s.checkOn(c)
	}
	m := s.message()
	return m.Check(c.rank, c.size)
}

// checkOn is check on a Comm with a device. Only here does the message escape to the heap.
func (s *side) checkOn(c *Comm) error {
	m := s.message()
	if d, ok := c.device.(engine.DeviceMessenger); ok {
		return d.AdmitMessage(&m)
	}
	return m.CheckOn(c.rank, c.size)
}

// newTransfer returns a transfer without messages. c.mu is held.
func (c *Comm) newTransfer(ctx context.Context) *transfer {
	var t *transfer
	if n := len(c.transfers.free); n > 0 {
		t = c.transfers.free[n-1]
		c.transfers.free = c.transfers.free[:n-1]
	} else {
		t = new(transfer)
		t.run = func() { _, _ = c.finish(t) }
	}
	t.ctx = ctx
	return t
}

// add adds a message to the transfer. It reuses the structs of earlier messages.
func (t *transfer) add(c *Comm, s *side) {
	n := len(t.msgs)
	if n < cap(t.msgs) {
		t.msgs = t.msgs[:n+1]
	} else {
		t.msgs = append(t.msgs, nil)
	}
	if t.msgs[n] == nil {
		t.msgs[n] = new(engine.Message)
	}
	m := t.msgs[n]
	m.Send, m.Flexible, m.Peer, m.Tag, m.Mem = s.send, s.flexible, s.peer, s.tag, s.buf.m
	m.Room, m.Limit, m.OnWait = s.room, s.limit, c.onWait
}

// acquire makes Close and Shrink wait for an activity until done is called. It returns an error on
// a Comm that is poisoned or closed. The count increases before the check, and Close sets its flag
// before it reads the count, so no activity begins after Close has found none.
func (c *Comm) acquire(op string) *Error {
	c.transfers.active.Add(1)
	err := c.refusal(op)
	if err != nil {
		c.done()
	}
	return err
}

// done ends an activity that acquire began.
func (c *Comm) done() {
	c.transfers.active.Add(-1)
	c.lot.WakeGoroutines()
}

// post announces the messages. c.mu is held, so that groups of messages do not mix.
func (c *Comm) post(t *transfer) {
	list := &c.transfers
	list.sent++
	t.logged = list.posted + 1
	for _, m := range t.msgs {
		m.Seq = list.sent
		list.posted++
		c.log.BeginMessage(list.posted, m)
	}
	c.e.Post(t.msgs...)
}

// finish waits until all messages of a transfer are delivered. It describes the first one that was
// received. Receives come first: they depend only on the other side having posted, so a group of
// messages cannot block itself.
func (c *Comm) finish(t *transfer) (received Message, err error) {
	if t.hasReceives(2) {
		err = c.finishMany(t)
	} else {
		err = c.finishIf(t, func(m *engine.Message) bool { return !m.Send })
	}
	if e := c.finishIf(t, func(m *engine.Message) bool { return m.Send }); err == nil {
		err = e
	}
	if m := t.msgs[0]; err == nil && !m.Send {
		received = Message{From: m.From, Tag: m.Tag, Len: m.Len, Type: DType(m.Mem.Type)}
	}
	reason := unreceived(err)
	poisoned := err != nil && reason == nil
	if poisoned {
		t.failed.Store(t.completed.Load() + 1)
	}
	seq := t.msgs[0].Seq
	c.mu.Lock()
	for i := range t.msgs {
		c.log.EndMessage(t.logged+uint64(i), err != nil)
	}
	t.completed.Add(1)
	c.transfers.active.Add(-1)
	if !poisoned && !t.kept && len(c.transfers.free) < keepTasks {
		for _, m := range t.msgs {
			m.Mem, m.Room = engine.Mem{}, nil
		}
		t.ctx, t.msgs, t.groups = nil, t.msgs[:0], t.groups[:0]
		c.transfers.free = append(c.transfers.free, t)
	}
	c.mu.Unlock()
	c.lot.WakeGoroutines()
	switch {
	case poisoned:
		return Message{}, c.report(err, t.msgs[0].Op(), seq)
	case err != nil:
		return Message{}, &Error{Op: "Recv", Seq: seq, Rank: c.rank, Cause: reason}
	}
	return received, nil
}

// hasReceives reports whether the transfer has at least n receives.
func (t *transfer) hasReceives(n int) bool {
	for _, m := range t.msgs {
		if !m.Send {
			n--
		}
		if n == 0 {
			return true
		}
	}
	return false
}

// finishIf finishes the messages that are selected, one after the other.
func (c *Comm) finishIf(t *transfer, selected func(*engine.Message) bool) (err error) {
	for _, m := range t.msgs {
		if !selected(m) {
			continue
		}
		if e := c.e.Finish(t.ctx, m); err == nil {
			err = e
		}
	}
	return err
}

// finishMany finishes the receives of a Batch. Messages from one rank with one tag arrive in order. All
// other messages may arrive in any order, and a receive may take its message only in Finish. So finishMany
// runs one goroutine for each pair of a rank and a tag.
func (c *Comm) finishMany(t *transfer) error {
	if len(t.groups) == 0 {
		for _, m := range t.msgs {
			if !m.Send {
				t.addToGroup(c, m)
			}
		}
	}
	t.open.Store(int64(len(t.groups)))
	for _, g := range t.groups[1:] {
		c.lot.Go(g.run)
	}
	t.groups[0].run()
	if t.wait == nil {
		t.wait = wait.NewWaiter(c.lot)
	}
	if err := t.wait.For(t); err != nil {
		return err
	}
	for _, g := range t.groups {
		if g.err != nil {
			return g.err
		}
	}
	return nil
}

// Ready reports whether the receives of all groups are finished.
func (t *transfer) Ready() bool { return t.open.Load() == 0 }

// A receiveGroup is the receives of a transfer from one rank with one tag, in order. Only the goroutine
// in run uses it until it decrements transfer.open.
type receiveGroup struct {
	peer, tag int
	msgs      []*engine.Message
	err       error
	run       func()
}

// addToGroup adds a receive to its group. It reuses the groups of earlier uses of the transfer.
func (t *transfer) addToGroup(c *Comm, m *engine.Message) {
	for _, g := range t.groups {
		if g.peer == m.Peer && g.tag == m.Tag {
			g.msgs = append(g.msgs, m)
			return
		}
	}
	n := len(t.groups)
	if n < cap(t.groups) {
		t.groups = t.groups[:n+1]
	} else {
		t.groups = append(t.groups, nil)
	}
	g := t.groups[n]
	if g == nil {
		g = new(receiveGroup)
		g.run = func() { c.finishGroup(t, g) }
		t.groups[n] = g
	}
	g.peer, g.tag = m.Peer, m.Tag
	g.msgs = append(g.msgs[:0], m)
}

// finishGroup finishes the receives of a group.
func (c *Comm) finishGroup(t *transfer, g *receiveGroup) {
	g.err = nil
	for _, m := range g.msgs {
		if err := c.e.Finish(t.ctx, m); g.err == nil {
			g.err = err
		}
	}
	if t.open.Add(-1) == 0 {
		c.lot.WakeGoroutines()
	}
}

// unreceived returns the reason in the error of a receive that took no message and left the Comm
// healthy. It returns nil for all other errors.
func unreceived(err error) error {
	if err == nil {
		return nil
	}
	if u := (*engine.Unreceived)(nil); errors.As(err, &u) {
		return u.Err
	}
	return nil
}
