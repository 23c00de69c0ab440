package tutti

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
)

// A Batch is several operations that are started together, as one: no other
// operation of this rank comes between them, small ones travel together, and
// nobody has to block for them. They must not depend on each other's results.
//
// The methods that describe an operation take what the Comm's methods take and
// return the Batch. A Batch can be started any number of times, and emptied by
// Reset; it is not safe for concurrent use.
type Batch struct {
	c     *Comm
	calls task
	msgs  []side
	name  string
	on    Stream
	err   error // of the first wrong argument
}

// Batch returns an empty Batch.
func (c *Comm) Batch() *Batch { return &Batch{c: c} }

// Start starts the operations and returns at once. The context governs the
// operations; their buffers must be left alone until the Work is over.
func (b *Batch) Start(ctx context.Context) (Work, error) {
	c := b.c
	if ctx == nil {
		return Work{}, c.refuse("Batch", &cause{kind: ErrInvalid, reason: errNilContext.Error()})
	}
	if b.err != nil {
		return Work{}, b.err
	}
	w, err := b.start(ctx)
	if err != nil {
		c.kept()
	}
	return w, err
}

func (b *Batch) start(ctx context.Context) (Work, error) {
	c := b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refusal("Batch"); err != nil {
		return Work{}, err
	}
	w := Work{c: c}
	if len(b.msgs) > 0 {
		if err := c.board("Batch"); err != nil {
			return Work{}, err
		}
	}
	if len(b.calls.calls) > 0 {
		t := c.newTask(ctx)
		for i := range b.calls.calls {
			t.add(&b.calls.calls[i])
			t.calls[i].Name = b.name
		}
		err := b.takePlace(t)
		if err == nil {
			err = c.enqueue(t)
		}
		if err != nil {
			if len(b.msgs) > 0 {
				c.landed()
			}
			return Work{}, err
		}
		w.seq = t.seq
	}
	if len(b.msgs) > 0 {
		f := c.newFlight(ctx)
		for _, s := range b.msgs {
			f.add(s)
		}
		w.flight, w.trip = f, f.landed.Load()+1
		c.depart(f)
		c.lot.Go(f.run)
	}
	return w, nil
}

// takePlace puts a task in order with the Batch's stream, if it has one. The
// Comm's lock is held, so that the order is that of the tasks.
func (b *Batch) takePlace(t *task) error {
	if b.on == nil {
		return nil
	}
	place, err := b.c.device.Order(b.on)
	if err != nil {
		return b.c.refuse("Batch", err)
	}
	t.place = place
	return nil
}

// On puts the collectives of the Batch in order with a stream of the Comm's
// device, without blocking: they begin when the stream has done what it holds
// when the Batch is started, and what is put into the stream after that waits
// for them, or for their failure. Messages are not put in order.
func (b *Batch) On(s Stream) *Batch {
	switch {
	case b.err != nil:
	case b.c.device == nil:
		b.err = b.c.refuse("Batch", &cause{kind: ErrNoDevicePath, reason: "a stream on a Comm that was made without a device"})
	case s == nil:
		b.err = b.c.refuse("Batch", &cause{kind: ErrInvalid, reason: "the stream is nil"})
	}
	b.on = s
	return b
}

// Named gives the Batch a name, which must be the same on all ranks: it tells
// operations that look alike apart.
func (b *Batch) Named(name string) *Batch {
	b.name = name
	return b
}

// Reset empties the Batch. What was started goes on.
func (b *Batch) Reset() *Batch {
	clear(b.calls.calls)
	b.calls.calls, b.calls.parts = b.calls.calls[:0], b.calls.parts[:0]
	clear(b.msgs)
	b.msgs, b.name, b.on, b.err = b.msgs[:0], "", nil, nil
	return b
}

func (b *Batch) add(call engine.Call) *Batch {
	if err := b.c.admit(&call); err != nil {
		if b.err == nil {
			b.err = b.c.refuse(call.Op(), err)
		}
		return b
	}
	b.calls.add(&call)
	return b
}

func (b *Batch) message(op string, s side) *Batch {
	if err := s.check(b.c); err != nil {
		if b.err == nil {
			b.err = b.c.refuse(op, err)
		}
		return b
	}
	b.msgs = append(b.msgs, s)
	return b
}

// AllReduce adds an operation; see Comm.AllReduce.
func (b *Batch) AllReduce(buf Buffer, op Op) *Batch { return b.add(allReduce(buf, buf, op)) }

// AllReduceTo adds an operation; see Comm.AllReduceTo.
func (b *Batch) AllReduceTo(dst, src Buffer, op Op) *Batch { return b.add(allReduce(dst, src, op)) }

// Reduce adds an operation; see Comm.Reduce.
func (b *Batch) Reduce(dst, src Buffer, op Op, root int) *Batch {
	return b.add(reduce(dst, src, op, root))
}

// Broadcast adds an operation; see Comm.Broadcast.
func (b *Batch) Broadcast(buf Buffer, root int) *Batch { return b.add(broadcast(buf, root)) }

// AllGather adds an operation; see Comm.AllGather.
func (b *Batch) AllGather(dst, src Buffer) *Batch { return b.add(allGather(dst, src)) }

// AllGatherV adds an operation; see Comm.AllGatherV.
func (b *Batch) AllGatherV(dst []Buffer, src Buffer) *Batch { return b.add(allGatherV(dst, src)) }

// ReduceScatter adds an operation; see Comm.ReduceScatter.
func (b *Batch) ReduceScatter(dst, src Buffer, op Op) *Batch {
	return b.add(reduceScatter(dst, src, op))
}

// ReduceScatterV adds an operation; see Comm.ReduceScatterV.
func (b *Batch) ReduceScatterV(dst Buffer, src []Buffer, op Op) *Batch {
	return b.add(reduceScatterV(dst, src, op))
}

// Gather adds an operation; see Comm.Gather.
func (b *Batch) Gather(dst, src Buffer, root int) *Batch { return b.add(gather(dst, src, root)) }

// GatherV adds an operation; see Comm.GatherV.
func (b *Batch) GatherV(dst []Buffer, src Buffer, root int) *Batch {
	return b.add(gatherV(dst, src, root))
}

// Scatter adds an operation; see Comm.Scatter.
func (b *Batch) Scatter(dst, src Buffer, root int) *Batch { return b.add(scatter(dst, src, root)) }

// ScatterV adds an operation; see Comm.ScatterV.
func (b *Batch) ScatterV(dst Buffer, src []Buffer, root int) *Batch {
	return b.add(scatterV(dst, src, root))
}

// AllToAll adds an operation; see Comm.AllToAll.
func (b *Batch) AllToAll(dst, src Buffer) *Batch { return b.add(allToAll(dst, src)) }

// AllToAllV adds an operation; see Comm.AllToAllV.
func (b *Batch) AllToAllV(dst, src []Buffer) *Batch { return b.add(allToAllV(dst, src)) }

// Barrier adds an operation; see Comm.Barrier.
func (b *Batch) Barrier() *Batch { return b.add(engine.Call{Verb: engine.Barrier}) }

// Send adds a message; see Comm.Send.
func (b *Batch) Send(to int, buf Buffer, tag int) *Batch {
	return b.message("Send", side{true, to, tag, buf})
}

// Recv adds a message; see Comm.Recv.
func (b *Batch) Recv(from int, buf Buffer, tag int) *Batch {
	return b.message("Recv", side{false, from, tag, buf})
}
