package gpu

import (
	"context"
	"errors"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/nccl"
)

// The two ranks of a message of device memory first exchange messages of host memory, which the CPU
// engine matches and bounds in time. The sender's note has the tag of the message. The receiver
// compares the note with its own arguments and replies with a proposed time; see messageOrder. The
// sender answers with its verdict, the decided time. Then both ranks call NCCL. The tags of the
// reply and the verdict are negative, so that they differ from users' tags, and contain the sender's
// number of the message.
const idTag = -1

func replyTag(number uint64) int   { return -2 - 2*int(number) }
func verdictTag(number uint64) int { return -3 - 2*int(number) }

// The words of a note.
const (
	noteType = iota
	noteCount
	noteNumber
	noteWords
)

// A transfer is one side of a message of device memory that is under way.
type transfer struct {
	e      *Engine
	m      *engine.Message
	mem    engine.Mem
	from   int    // the sender
	number uint64 // the sender's number of the message

	note, reply, verdict engine.Message
	words                [noteWords]uint64
	times                [2]uint64 // proposed, decided

	// Guarded by the mu of the messageOrder.
	time   uint64 // logical time; zero: none
	placed bool   // time is final

	started  chan struct{} // closed when the message was passed to NCCL, or passing it failed
	startErr error
	event    *cuda.Event // recorded after the message
	on       *pair
	before   *transfer // the previous message on the pair's stream

	done chan struct{}
	err  error // valid when done is closed
}

// AdmitMessage returns an error if a message cannot be carried out.
func (e *Engine) AdmitMessage(m *engine.Message) error {
	switch {
	case m.Mem.Device == 0:
		return m.Check(e.rank, e.size)
	case e.stage != nil: // only collectives are staged
		return m.CheckOn(e.rank, e.size)
	}
	if err := m.CheckThere(e.rank, e.size, e.dev.Ordinal()); err != nil {
		return err
	}
	return e.holds(&m.Mem)
}

// Post announces messages. See engine.Engine.
func (e *Engine) Post(msgs ...*engine.Message) {
	for i, m := range msgs {
		if m.Mem.Device == 0 {
			e.Engine.Post(msgs[i : i+1]...)
		} else {
			e.postDevice(m)
		}
	}
}

// postDevice announces a message of device memory.
func (e *Engine) postDevice(m *engine.Message) {
	t := &transfer{e: e, m: m, mem: m.Mem, from: m.Peer, started: make(chan struct{}), done: make(chan struct{})}
	m.Extra = t
	t.note = engine.Message{Send: m.Send, Peer: m.Peer, Tag: m.Tag, Seq: m.Seq, Mem: memOf(t.words[:], kernel.Note)}
	if m.Send {
		t.from = e.rank
		e.mu.Lock()
		e.lastNumber++
		t.number = e.lastNumber
		if m.Peer == e.rank {
			e.selfSends[t.number] = t
		}
		e.mu.Unlock()
		t.words = [noteWords]uint64{uint64(m.Mem.Type), uint64(m.Mem.N), t.number}
		t.reply = t.message(false, replyTag(t.number), 0)
		e.Engine.Post(&t.reply)
	}
	e.Engine.Post(&t.note)
	go t.run()
}

// message returns the message of host memory that carries one of t.times.
func (t *transfer) message(send bool, tag, which int) engine.Message {
	return engine.Message{Send: send, Peer: t.m.Peer, Tag: tag, Seq: t.m.Seq, Mem: memOf(t.times[which:which+1], kernel.Note)}
}

// Finish waits until a message has been delivered. See engine.Engine.
func (e *Engine) Finish(ctx context.Context, m *engine.Message) error {
	t, ok := m.Extra.(*transfer)
	if !ok {
		return e.Engine.Finish(ctx, m)
	}
	m.Extra = nil
	m.From, m.Len = m.Peer, m.Mem.N
	select {
	case <-t.done:
		return t.err
	default:
	}
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		_ = t.operation(ctx).fail(ctx.Err()) // which also ends the transfer
	case <-e.Failed():
	}
	limit := time.NewTimer(engine.AbandonAfter)
	defer limit.Stop()
	select {
	case <-t.done:
		return t.err
	case <-limit.C: // the driver does not return
		return e.failure()
	}
}

// operation returns an operation for the transfer, for its errors and its calls of NCCL.
func (t *transfer) operation(ctx context.Context) *operation {
	return &operation{e: t.e, ctx: ctx, seq: t.m.Seq, name: t.m.Op(), message: t.m}
}

// run carries the message out.
func (t *transfer) run() {
	err := t.agree()
	if err == nil {
		err = t.move()
	}
	if err == nil {
		if f := t.e.failure(); f != nil {
			// A rank that failed may have changed the memory while it was read.
			err = f
		}
	}
	t.err = err
	close(t.done)
}

// agree waits for the other side and compares the arguments.
func (t *transfer) agree() error {
	e, ctx := t.e, context.Background()
	if err := e.Engine.Finish(ctx, &t.note); err != nil {
		t.forget()
		return err
	}
	if t.m.Send {
		return nil
	}
	n, kind := t.words[noteCount], kernel.DType(t.words[noteType])
	t.number = t.words[noteNumber]
	if n == uint64(t.mem.N) && kind == t.mem.Type {
		return nil
	}
	f := t.m.Mismatch(e.rank, t.m.Peer, n, kind)
	e.Fail(f)
	return e.first(f)
}

// forget ends the receive of a reply that will not arrive, because the group has failed.
func (t *transfer) forget() {
	if !t.m.Send {
		return
	}
	if t.m.Peer == t.e.rank {
		_ = t.lend()
		return
	}
	_ = t.e.Engine.Finish(context.Background(), &t.reply)
}

// move transfers the data.
func (t *transfer) move() error {
	e := t.e
	if t.m.Peer == e.rank {
		if t.m.Send {
			return t.lend()
		}
		return t.copy()
	}
	err := t.queue()
	if err == nil && t.mem.N == 0 {
		return nil
	}
	if err == nil {
		e.order.advance()
		select {
		case <-t.started:
			return t.await()
		case <-e.Failed():
			err = e.failure()
		}
	}
	if t.time == 0 || e.order.leave(t) {
		return err
	}
	<-t.started // advance has started it
	return t.await()
}

// queue agrees with the other rank on the message's time. A message without data needs none.
func (t *transfer) queue() error {
	e, ctx := t.e, context.Background()
	exchange := func(m *engine.Message, send bool, tag, which int) error {
		*m = t.message(send, tag, which)
		e.Engine.Post(m)
		return e.Engine.Finish(ctx, m)
	}
	if t.m.Send {
		if err := e.Engine.Finish(ctx, &t.reply); err != nil || t.mem.N == 0 {
			return err
		}
		t.times[1] = e.order.decide(t, t.times[0])
		return exchange(&t.verdict, true, verdictTag(t.number), 1)
	}
	if t.mem.N > 0 {
		t.times[0] = e.order.propose(t)
	}
	if err := exchange(&t.reply, true, replyTag(t.number), 0); err != nil || t.mem.N == 0 {
		return err
	}
	if err := exchange(&t.verdict, false, verdictTag(t.number), 1); err != nil {
		return err
	}
	e.order.place(t, t.times[1])
	return nil
}

// start passes the message to NCCL. The messageOrder calls it.
func (t *transfer) start() {
	t.startErr = t.launch()
	close(t.started)
}

func (t *transfer) launch() (err error) {
	e := t.e
	e.inUse.RLock()
	defer e.inUse.RUnlock()
	if f := e.failure(); f != nil {
		return f
	}
	o := t.operation(context.Background())
	o.deadline = e.limit()
	if t.on, err = o.pair(t.m.Peer); err != nil {
		return err
	}
	if t.event, err = e.events.get(); err != nil {
		return err
	}
	e.orderGuard.begin(o)
	b := nccl.Known(e.dev, uintptr(t.mem.Ptr), t.mem.N, types[t.mem.Type])
	if t.m.Send {
		err = t.on.comm.Send(b, 1-t.on.comm.Rank(), t.on.stream)
	} else {
		err = t.on.comm.Recv(b, 1-t.on.comm.Rank(), t.on.stream)
	}
	if late := e.orderGuard.end(); err == nil {
		err = late
	}
	t.before, t.on.last = t.on.last, t
	return errors.Join(err, t.event.Record(t.on.stream))
}

// await waits until the device has carried out the message.
func (t *transfer) await() error {
	e := t.e
	e.inUse.RLock()
	defer e.inUse.RUnlock()
	o := t.operation(context.Background())
	o.message, o.deadline = nil, e.limit()
	err := t.startErr
	if err == nil && t.before != nil {
		// The messages of a stream complete in order, and only the first one polls.
		select {
		case <-t.before.done:
		case <-e.Failed():
		}
	}
	t.before = nil
	if err == nil {
		err = o.await(t.event, t.on.comm)
	}
	if err != nil {
		err = o.fail(err)
		if t.event != nil {
			e.quiesce(t.event)
		}
	}
	if t.event != nil {
		e.events.put(t.event)
	}
	return err
}

// lend waits until the receiving transfer of this rank has copied a message to this rank itself.
func (t *transfer) lend() error {
	e := t.e
	err := e.Engine.Finish(context.Background(), &t.reply)
	if err != nil {
		e.mu.Lock()
		_, untouched := e.selfSends[t.number]
		delete(e.selfSends, t.number)
		e.mu.Unlock()
		if !untouched {
			<-t.started // the receiver is reading the memory
		}
	}
	return err
}

// copy receives a message from this rank itself.
func (t *transfer) copy() error {
	e := t.e
	e.mu.Lock()
	from := e.selfSends[t.number]
	delete(e.selfSends, t.number)
	e.mu.Unlock()
	if from == nil {
		return e.failure() // lend has withdrawn the message
	}
	err := t.copyFrom(from.mem)
	close(from.started)
	if err != nil {
		return err
	}
	t.reply = t.message(true, replyTag(t.number), 0)
	e.Engine.Post(&t.reply)
	return e.Engine.Finish(context.Background(), &t.reply)
}

func (t *transfer) copyFrom(src engine.Mem) error {
	e := t.e
	if t.mem.N == 0 {
		return nil
	}
	e.inUse.RLock()
	defer e.inUse.RUnlock()
	o := t.operation(context.Background())
	o.message, o.deadline = nil, e.limit()
	s, err := e.ownStream()
	if err == nil {
		t.event, err = e.events.get()
	}
	if err != nil {
		return o.fail(err)
	}
	defer e.events.put(t.event)
	err = errors.Join(e.copyOn(s, t.mem, src), t.event.Record(s))
	if err == nil {
		err = o.await(t.event, nil)
	}
	if err != nil {
		err = o.fail(err)
		e.quiesce(t.event)
	}
	return err
}
