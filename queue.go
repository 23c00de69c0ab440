package tutti

import (
	"context"
	"errors"

	"github.com/tutti-go/tutti/internal/engine"
)

// The turn word says who may run operations: one goroutine at a time, in the
// order in which they were started. Its upper bits are the number of the
// operation that was started last, so that taking a number and taking the turn
// are one step. The lowest three bits:
const (
	running = 1 << iota // a goroutine runs operations
	queued              // and will find others in the queue; set only by holders of c.mu
	closed              // no operation can be started
	numberOne
)

var errNilContext = errors.New("the context is nil")

// do carries out one call, on the caller's goroutine if nothing is before it.
func (c *Comm) do(ctx context.Context, call *engine.Call) (uint64, error) {
	if err := c.check(ctx, call); err != nil {
		return 0, err
	}
	// A closed Comm refuses it in doInTurn, a poisoned one in Run.
	turn := c.turn.Load()
	if turn%numberOne != 0 || !c.turn.CompareAndSwap(turn, turn+numberOne|running) {
		return c.doInTurn(ctx, call)
	}
	turn += numberOne | running
	seq := turn / numberOne

	c.call[0] = *call
	if c.device != nil {
		c.watchDriver()
	}
	c.log.Begin(seq, &c.call[0])
	err := c.e.Run(ctx, seq, c.call[:])
	if c.verifier != nil && err == nil {
		err = c.verify(ctx, seq, c.call[:])
	}
	c.log.End(seq, err != nil)
	c.call[0].Forget()

	if err != nil {
		c.noteFailed(seq) // before the turn is over: Shrink counts then
	}
	if !c.turn.CompareAndSwap(turn, turn&^running) {
		c.passTurn()
	}
	if err != nil {
		return seq, c.report(err)
	}
	return seq, nil
}

// doInTurn carries out one call after those that were started before it.
func (c *Comm) doInTurn(ctx context.Context, call *engine.Call) (uint64, error) {
	c.mu.Lock()
	t := c.newTask(ctx)
	t.add(call)
	err := c.enqueue(t)
	seq := t.seq
	c.mu.Unlock()
	if err != nil {
		c.kept()
		return 0, err
	}
	return seq, Work{c: c, seq: seq}.wait(context.Background())
}

// check finds out whether the arguments can be right.
func (c *Comm) check(ctx context.Context, call *engine.Call) error {
	if ctx == nil {
		return c.refuse(call.Op(), &cause{kind: ErrInvalid, reason: errNilContext.Error()})
	}
	if err := c.admit(call); err != nil {
		return c.refuse(call.Op(), err)
	}
	return nil
}

// admit finds out whether the engine takes a call.
func (c *Comm) admit(call *engine.Call) error {
	if c.device != nil {
		// A copy, so that the caller's does not escape where there is no device.
		own, _ := c.copies.Get().(*engine.Call)
		if own == nil {
			own = new(engine.Call)
		}
		*own = *call
		err := c.device.Admit(own)
		*own = engine.Call{}
		c.copies.Put(own)
		return err
	}
	return call.Check(c.rank, c.size)
}

// enqueue gives a task its number and puts it behind those that wait. c.mu is
// held.
func (c *Comm) enqueue(t *task) error {
	turn, err := c.number(t)
	if err == nil {
		c.submit(t, turn)
	}
	return err
}

// number gives a task its number. It returns the turn word from before, for submit, which
// must follow. c.mu is held.
func (c *Comm) number(t *task) (turn uint64, err error) {
	for {
		turn = c.turn.Load()
		if turn&closed != 0 {
			return 0, c.refusal(t.calls[0].Op())
		}
		if c.turn.CompareAndSwap(turn, turn+numberOne|running|queued) {
			break
		}
	}
	t.seq = turn/numberOne + 1
	t.queued = c.log.Now()
	if c.device != nil {
		t.sign = c.device.Sign(t.calls)
	}
	return turn, nil
}

// submit puts a numbered task behind those that wait. A task in a stream's order, whose
// caller waits until it is launched, is launched here if nothing is before it: to wake the
// queue's goroutine takes longer. c.mu is held, but not while other ranks are waited for.
func (c *Comm) submit(t *task, turn uint64) {
	if t.on != nil && c.mayLaunch(t, turn) {
		c.last = t.ctx.Done()
		c.give(t)
	} else {
		c.watch(t, turn)
		c.queue.push(t)
	}
	switch {
	case turn&running == 0:
		c.lot.Go(c.drain)
	case c.device != nil && !c.queue.empty():
		c.progress.Broadcast() // the queue's goroutine may be waiting for the device
	}
}

// mayLaunch reports whether a caller may launch its own task, which was numbered when turn was
// the turn word. Nothing may be before it: no operation runs, none is queued, and the device
// has room. And an operation of its kind must have succeeded before: NCCL may allocate in the
// first one, and a caller that is stuck in the driver cannot be told of its timeout. c.mu is
// held.
func (c *Comm) mayLaunch(t *task, turn uint64) bool {
	idle := turn&running == 0 || c.idle
	return idle && c.queue.empty() && !c.giving && len(c.given) < maxGiven && c.succeeded[t.sign]
}

// maxSigns bounds how many kinds of operations are remembered.
const maxSigns = 1024

// noteSuccess remembers that an operation with a sign has succeeded. c.mu is held.
func (c *Comm) noteSuccess(sign uint64) {
	if sign == 0 || c.succeeded[sign] || len(c.succeeded) == maxSigns {
		return
	}
	if c.succeeded == nil {
		c.succeeded = make(map[uint64]bool)
	}
	c.succeeded[sign] = true
}

// watch watches over the context of a task that waits for its turn: a deadline
// counts also then. If the task before it in the queue has the same context it
// needs no watch, because that one is watched until it runs, and watches while
// it runs.
func (c *Comm) watch(t *task, turn uint64) {
	done := t.ctx.Done()
	if turn&running != 0 && done != nil && (turn&queued == 0 || done != c.last) {
		op, seq, ctx := t.calls[0].Op(), t.seq, t.ctx
		t.stop = c.lot.AfterFunc(ctx, func() { c.expire(ctx, op, seq) })
	}
	c.last = done
}

// expire poisons the Comm because the context of an operation ended before it
// had its turn.
func (c *Comm) expire(ctx context.Context, op string, seq uint64) {
	f := &engine.Failure{Op: op, Seq: seq, Rank: c.rank}
	f.Wait.Phase = engine.Queued
	f.Interrupt(ctx, ctx.Err(), 0)
	c.e.Fail(f)
}

// runQueue runs tasks until there are none. It is the goroutine behind
// operations that nobody blocks for; it lives only as long as there are any.
func (c *Comm) runQueue() {
	c.mu.Lock()
	for t := c.next(); t != nil; t = c.next() {
		if c.toDevice(t) {
			c.give(t)
			continue
		}
		if c.device != nil {
			c.watchDriver()
		}
		c.log.BeginQueued(t.seq, t.calls, t.queued) // a dump finds it there, or in the queue
		c.mu.Unlock()
		if t.stop != nil {
			t.stop()
		}
		err := c.e.Run(t.ctx, t.seq, t.calls)
		if c.verifier != nil && err == nil {
			err = c.verify(t.ctx, t.seq, t.calls)
		}
		c.log.End(t.seq, err != nil)
		if err != nil {
			// Those behind it fail too: the engine refuses them.
			c.noteFailed(t.seq)
			c.dead.Store(true)
		} else {
			c.finished.Store(t.seq)
		}
		c.lot.Wake(nil)
		c.mu.Lock()
		c.putTask(t)
	}
	c.endTurn()
}

// next returns the task that may be begun next, and nil when none is left and
// none under way. c.mu is held.
func (c *Comm) next() *task {
	for {
		if c.giving { // a caller launches its own task
			c.idle = true
			c.progress.Wait()
			c.idle = false
			continue
		}
		t := c.queue.first()
		if len(c.given) == 0 || t != nil && c.toDevice(t) && len(c.given) < maxGiven {
			return c.queue.pop()
		}
		switch {
		case t == nil:
			c.low, c.idle = 0, true
			c.progress.Wait()
			c.idle = false
		case c.toDevice(t):
			c.low = maxGiven - refill
			c.progress.Wait()
		default: // the host waits for the device
			c.low = 0
			last := c.given[len(c.given)-1].t.seq
			c.want(last)
			c.progress.Wait()
			c.unwant(last)
		}
	}
}

// passTurn ends the turn of a goroutine that found, when its operation was
// over, that others had been started or the Comm closed meanwhile.
func (c *Comm) passTurn() {
	c.mu.Lock()
	if !c.queue.empty() {
		c.mu.Unlock()
		c.lot.Go(c.drain)
		return
	}
	c.endTurn()
}

// endTurn leaves the turn to whoever comes next. c.mu is held, and given up.
func (c *Comm) endTurn() {
	for turn := c.turn.Load(); !c.turn.CompareAndSwap(turn, turn&^(running|queued)); {
		turn = c.turn.Load()
	}
	c.mu.Unlock()
	c.lot.Wake(nil)
}

// report is the public form of what an engine returned.
func (c *Comm) report(err error) error {
	if f := (*engine.Failure)(nil); errors.As(err, &f) {
		return c.failure(f)
	}
	return &Error{Rank: c.rank, Cause: err}
}
