package tutti

import (
	"context"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/engine"
)

// A flight is a message, or a group of messages, that is under way.
type flight struct {
	ctx    context.Context
	msgs   []*engine.Message
	logged uint64        // the log's number for the first of them
	landed atomic.Uint64 // how often this flight has landed; it is used again
	failed atomic.Uint64 // on which trip it has; zero: on none. It is not used again then.
	run    func()        // land on a goroutine of its own, bound once
}

// Send sends a buffer to another rank, whose Recv takes it: messages between
// two ranks with one tag arrive in order, tags are independent of each other.
// Send returns when the receiver has taken the data.
func (c *Comm) Send(ctx context.Context, to int, buf Buffer, tag int) error {
	return c.exchange(ctx, "Send", side{true, to, tag, buf}, side{})
}

// Recv receives a buffer that another rank sends with this tag. Type and
// length must be the sender's.
func (c *Comm) Recv(ctx context.Context, from int, buf Buffer, tag int) error {
	return c.exchange(ctx, "Recv", side{false, from, tag, buf}, side{})
}

// SendRecv sends and receives at once, so that ranks may exchange data or pass
// it round a ring. The two buffers must not overlap.
func (c *Comm) SendRecv(ctx context.Context, to int, src Buffer, from int, dst Buffer, tag int) error {
	return c.exchange(ctx, "SendRecv", side{false, from, tag, dst}, side{true, to, tag, src})
}

// side is one message's arguments.
type side struct {
	send bool
	peer int
	tag  int
	buf  Buffer
}

// exchange carries out one message, or two: a second side without a buffer is
// none.
func (c *Comm) exchange(ctx context.Context, op string, a, b side) error {
	if ctx == nil {
		return c.refuse(op, &cause{kind: ErrInvalid, reason: errNilContext.Error()})
	}
	two := op == "SendRecv"
	if err := a.check(c); err != nil {
		return c.refuse(op, err)
	}
	if two {
		if err := b.check(c); err != nil {
			return c.refuse(op, err)
		}
		if err := engine.CheckApart(a.buf.m, b.buf.m); err != nil {
			return c.refuse(op, err)
		}
	}
	c.mu.Lock()
	if err := c.board(op); err != nil {
		c.mu.Unlock()
		c.kept()
		return err
	}
	f := c.newFlight(ctx)
	f.add(a)
	if two {
		f.add(b)
	}
	c.depart(f)
	c.mu.Unlock()
	return c.land(f)
}

func (s side) check(c *Comm) error {
	if c.device != nil {
		return s.checkOn(c)
	}
	m := engine.Message{Peer: s.peer, Tag: s.tag, Mem: s.buf.m}
	return m.Check(c.rank, c.size)
}

// checkOn asks the device's engine. The message escapes here, and only here.
func (s side) checkOn(c *Comm) error {
	m := engine.Message{Peer: s.peer, Tag: s.tag, Mem: s.buf.m}
	if d, ok := c.device.(engine.DeviceMessenger); ok {
		return d.AdmitMessage(&m)
	}
	return m.CheckOn(c.rank, c.size)
}

// newFlight returns a flight without messages; c.mu is held.
func (c *Comm) newFlight(ctx context.Context) *flight {
	var f *flight
	if n := len(c.flights); n > 0 {
		f = c.flights[n-1]
		c.flights = c.flights[:n-1]
	} else {
		f = new(flight)
		f.run = func() { _ = c.land(f) }
	}
	f.ctx = ctx
	return f
}

// add puts a message into the flight, in a struct from an earlier flight if
// there is one.
func (f *flight) add(s side) {
	n := len(f.msgs)
	if n < cap(f.msgs) {
		f.msgs = f.msgs[:n+1]
	} else {
		f.msgs = append(f.msgs, nil)
	}
	if f.msgs[n] == nil {
		f.msgs[n] = new(engine.Message)
	}
	m := f.msgs[n]
	m.Send, m.Peer, m.Tag, m.Mem = s.send, s.peer, s.tag, s.buf.m
}

// board refuses flights on a Comm that is poisoned or closed; it counts those
// that it lets in. Close sets its flag before it looks at the count.
func (c *Comm) board(op string) *Error {
	c.flying.Add(1)
	err := c.refusal(op)
	if err != nil {
		c.landed()
	}
	return err
}

// landed counts out what board has let in.
func (c *Comm) landed() {
	c.flying.Add(-1)
	c.lot.Wake(nil)
}

// depart posts the messages; c.mu is held, so that groups of messages do not
// mix.
func (c *Comm) depart(f *flight) {
	c.sent++
	f.logged = c.posted + 1
	now := c.log.Now()
	for _, m := range f.msgs {
		m.Seq = c.sent
		c.posted++
		c.log.BeginMessage(c.posted, now, m)
		c.e.Post(m)
	}
}

// land waits until all messages of a flight are delivered. Receives come
// first: they need nothing but that the other side was posted, so that a group
// of messages cannot block itself.
func (c *Comm) land(f *flight) error {
	var err error
	for _, send := range []bool{false, true} {
		for _, m := range f.msgs {
			if m.Send != send {
				continue
			}
			if e := c.e.Finish(f.ctx, m); err == nil {
				err = e
			}
		}
	}
	if err != nil {
		f.failed.Store(f.landed.Load() + 1)
	}
	c.mu.Lock()
	now := c.log.Now()
	for i := range f.msgs {
		c.log.EndMessage(f.logged+uint64(i), now, err != nil)
	}
	f.landed.Add(1)
	c.flying.Add(-1)
	if err == nil && len(c.flights) < keepTasks {
		for _, m := range f.msgs {
			m.Mem, m.Pair, m.Extra = engine.Mem{}, nil, nil
		}
		f.ctx, f.msgs = nil, f.msgs[:0]
		c.flights = append(c.flights, f)
	}
	c.mu.Unlock()
	c.lot.Wake(nil)
	if err != nil {
		return c.report(err)
	}
	return nil
}
