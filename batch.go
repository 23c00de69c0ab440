package tutti

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
)

// A Batch is several operations that are started together, as one operation. No
// other operation of this rank runs between them, small operations share messages,
// and no goroutine has to block for them.
//
// The operations run in any order and at the same time. So no operation may write
// memory that another one reads or writes. Two operations may read the same memory.
// Start refuses a Batch that breaks this rule, with ErrInvalid. Each rank
// checks its own buffers. A Broadcast's buffer counts as written also on the root,
// against buffers that all ranks use, so that all ranks refuse the Batch.
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
	err   error     // of the first wrong argument
	ran   *transfer // of the last Run; nil: there was none since the messages changed

	checked   bool // no operation writes memory that another one uses
	footprint engine.Footprint
}

// Batch returns an empty Batch.
func (c *Comm) Batch() *Batch { return &Batch{c: c} }

// Start starts the operations and returns at once, unless the Batch has a stream (see On).
// The context governs the operations. Their buffers must not be used until the Work is
// complete.
func (b *Batch) Start(ctx context.Context) (Work, error) {
	w, err := b.begin(ctx, true)
	if err == nil && b.on != nil && w.seq != 0 {
		return w.launched()
	}
	return w, err
}

// Run starts the operations and returns when they are complete, with their error. Of many small
// messages, and nothing else, it is faster than Start and Wait, because it starts no goroutine.
func (b *Batch) Run(ctx context.Context) error {
	own := len(b.calls.Calls) == 0 && len(b.msgs) > 0
	w, err := b.begin(ctx, !own)
	if err != nil {
		return err
	}
	if own {
		_, err = b.c.finish(w.transfer)
		return err
	}
	return w.wait(context.Background(), batchOp)
}

// begin starts the operations. If background is false, the caller finishes the messages.
func (b *Batch) begin(ctx context.Context, background bool) (Work, error) {
	c := b.c
	if ctx == nil {
		return Work{}, c.refuse(batchOp, &cause{kind: ErrInvalid, reason: errNilContext.Error()})
	}
	if err := b.check(); err != nil {
		return Work{}, err
	}
	if b.on != nil {
		if err := c.refusal(batchOp); err != nil {
			c.awaitReport()
			return Work{}, err
		}
		// Without c.mu: a call of the driver that does not return must not keep the lock.
		if err := c.device.AdmitStream(b.on); err != nil {
			return Work{}, c.refuse(batchOp, err)
		}
	}
	w, err := b.start(ctx, background)
	if err != nil {
		c.awaitReport()
	}
	return w, err
}

// check returns the error of the first wrong argument, or of operations that write
// memory that another one uses. The result is kept until an operation is added.
func (b *Batch) check() error {
	if b.err != nil || b.checked {
		return b.err
	}
	if len(b.calls.Calls)+len(b.msgs) > 1 {
		f := &b.footprint
		f.Reset()
		for i := range b.calls.Calls {
			f.AddCall(i, &b.calls.Calls[i])
		}
		for i, s := range b.msgs {
			f.AddMessage(i, s.send, s.buf.m)
		}
		if err := f.Check(b.c.rank, b.c.size); err != nil {
			b.err = b.c.refuse(batchOp, err)
			return b.err
		}
	}
	b.checked = true
	return nil
}

func (b *Batch) start(ctx context.Context, background bool) (Work, error) {
	c := b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refusal(batchOp); err != nil {
		return Work{}, err
	}
	w := Work{c: c}
	if len(b.msgs) > 0 {
		if err := c.acquire(batchOp); err != nil {
			return Work{}, err
		}
	}
	var t *task
	var turn uint64
	if len(b.calls.Calls) > 0 {
		t = c.newTask(ctx)
		if b.on != nil {
			t.Stream = b.on
		}
		for i := range b.calls.Calls {
			t.add(&b.calls.Calls[i])
			t.Calls[i].Name = b.name
		}
		var err error
		if turn, err = c.number(t); err != nil {
			if len(b.msgs) > 0 {
				c.done()
			}
			return Work{}, err
		}
		w.seq = t.Seq
	}
	if len(b.msgs) > 0 {
		m := b.transferFor(ctx, background)
		w.transfer, w.use = m, m.completed.Load()+1
		c.post(m)
		if background {
			c.lot.Go(m.run)
		}
	}
	if t != nil {
		c.submit(t, turn) // after the messages: submit may wait for other ranks
	}
	return w, nil
}

// transferFor returns a transfer with the messages of the Batch. Run keeps its transfer for the next
// Run. c.mu is held.
func (b *Batch) transferFor(ctx context.Context, background bool) *transfer {
	if !background && b.ran != nil {
		b.ran.ctx = ctx
		return b.ran
	}
	t := b.c.newTransfer(ctx)
	for i := range b.msgs {
		t.add(b.c, &b.msgs[i])
	}
	if !background {
		t.kept, b.ran = true, t
	}
	return t
}

// On orders the collectives of the Batch with a stream of the Comm's device. They begin when the
// stream has completed the work that it holds when the Batch is started. Work that enters the
// stream after Start has returned waits until they are complete or have failed. Messages are not
// ordered.
//
// Start then returns when all ranks have started the Batch and the operations are in the
// device's queue; it does not wait for the device. With Config.HostStaging it returns when
// the operations are complete. The first operation of a Comm makes NCCL's communicator, and
// the driver may then wait for everything in the device's queue: a stream that is held back
// by the host (cuStreamWaitValue) must not depend on the return of Start.
//
// Start calls the driver on the caller's goroutine. If the driver itself does not return,
// neither does Start; Wait, Close and the calls of other goroutines still end in time.
func (b *Batch) On(s Stream) *Batch {
	switch {
	case b.err != nil:
	case b.c.device == nil:
		b.err = b.c.refuse(batchOp, &cause{kind: ErrNoDevicePath, reason: "a stream on a Comm that was made without a device"})
	case s == nil:
		b.err = b.c.refuse(batchOp, &cause{kind: ErrInvalid, reason: "the stream is nil"})
	}
	b.on = s
	return b
}

// Named sets the name of the Batch, which must be the same on all ranks. It distinguishes
// operations that look alike.
func (b *Batch) Named(name string) *Batch {
	b.name = name
	return b
}

// Reset empties the Batch. Operations that were started continue.
func (b *Batch) Reset() *Batch {
	clear(b.calls.Calls)
	b.calls.Calls, b.calls.parts = b.calls.Calls[:0], b.calls.parts[:0]
	clear(b.msgs)
	b.msgs, b.ran, b.name, b.on, b.err, b.checked = b.msgs[:0], nil, "", nil, nil, false
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
	b.checked = false
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
	b.ran, b.checked = nil, false
	return b
}

// AllReduce adds an operation; see Comm.AllReduce.
func (b *Batch) AllReduce(buf Buffer, op Op) *Batch { return b.AllReduceTo(buf, buf, op) }

// AllReduceTo adds an operation; see Comm.AllReduceTo.
func (b *Batch) AllReduceTo(dst, src Buffer, op Op) *Batch {
	var call engine.Call
	putAllReduce(&call, dst, src, op)
	return b.add(call)
}

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

// Scan adds an operation; see Comm.Scan.
func (b *Batch) Scan(dst, src Buffer, op Op) *Batch { return b.add(scan(engine.Scan, dst, src, op)) }

// ExScan adds an operation; see Comm.ExScan.
func (b *Batch) ExScan(dst, src Buffer, op Op) *Batch {
	return b.add(scan(engine.ExScan, dst, src, op))
}

// Barrier adds an operation; see Comm.Barrier.
func (b *Batch) Barrier() *Batch { return b.add(engine.Call{Verb: engine.Barrier}) }

// Send adds a message; see Comm.Send.
func (b *Batch) Send(to int, buf Buffer, tag int) *Batch {
	return b.message("Send", side{send: true, peer: to, tag: tag, buf: buf})
}

// Recv adds a message from a named rank with the length of buf; see Comm.Recv.
func (b *Batch) Recv(from int, buf Buffer, tag int) *Batch {
	return b.message("Recv", side{peer: from, tag: tag, buf: buf})
}
