package tutti

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/fifo"
	recorder "github.com/tutti-go/tutti/internal/flight"
)

// A queue holds the operations of a Comm that have been started and are not complete. They run in
// the order of their numbers. The turn is the right to run them, and one of these has it at a time:
// a caller of a blocking method, the goroutine that runs runQueue, or the device engine with the
// operations that were submitted to it.
type queue struct {
	turn      atomic.Uint64 // the number of the last started operation and three bits; see running
	finished  atomic.Uint64 // number of the last queued operation that succeeded
	launched  atomic.Uint64 // number of the last operation with a stream that the device has, or that failed
	failedAt  atomic.Uint64 // number of the first operation that failed; zero: none
	dead      atomic.Bool   // a queued operation failed, and no other will succeed
	abandoned atomic.Bool   // operations were left in the driver; see abandonOperations

	call  [1]engine.Call // the running call of a blocking method; belongs to the turn
	drain func()         // Comm.runQueue, bound once so that starting a goroutine does not allocate

	// Comm.mu guards the fields below.
	waiting    fifo.Queue[*task] // not begun
	onDevice   fifo.Queue[*task] // submitted to the device engine and not complete
	begun      int               // number of tasks of onDevice that the device engine has begun
	draining   bool              // runQueue has the turn
	submitting bool              // a caller submits its task without Comm.mu, and has the turn
	awaited    uint64            // number of the device operation that a host operation waits for; zero: none
	lastDone   <-chan struct{}   // the Done channel of the context of the last queued operation
	tasks      []*task           // for reuse
	waits      []*workWait       // for reuse
}

// The turn word has the number of the last started operation in its upper bits, so that taking a
// number and taking the turn are one step. The lowest three bits:
const (
	running   = 1 << iota // a goroutine or the device has the turn
	queued                // other operations wait in the queue; set only with Comm.mu held
	closed                // no operation can be started
	numberOne             // the unit of the number in the upper bits
)

var errNilContext = errors.New("the context is nil")

// started returns the number of the operation that was started last.
func (q *queue) started() uint64 { return q.turn.Load() / numberOne }

// deviceHasTurn reports whether the device engine has the turn, so that further device operations
// can be submitted at once. Comm.mu is held.
func (q *queue) deviceHasTurn() bool { return !q.onDevice.Empty() && !q.draining && !q.submitting }

// do carries out one call and returns its number. It runs on the caller's goroutine if no operation is before
// it, which then has the turn; otherwise through the queue. Wrong arguments are refused on this rank alone;
// an error of the engine poisons the Comm.
func (c *Comm) do(ctx context.Context, call *engine.Call) (uint64, error) {
	if err := c.check(ctx, call); err != nil {
		return 0, err
	}
	// doInTurn refuses the call on a closed Comm, and Run on a poisoned one.
	q := &c.queue
	turn := q.turn.Load()
	if turn%numberOne != 0 || !q.turn.CompareAndSwap(turn, turn+numberOne|running) {
		return c.doInTurn(ctx, call)
	}
	turn += numberOne | running
	seq := turn / numberOne

	q.call[0] = *call
	c.log.Begin(seq, &q.call[0])
	err := c.e.Run(ctx, seq, q.call[:])
	if c.verifier != nil && err == nil {
		err = c.verify(ctx, seq, q.call[:])
	}
	c.log.End(seq, err != nil)
	q.call[0].Forget()

	if err != nil {
		c.noteFailed(seq) // before the turn ends, because Shrink reads the number after that
	}
	if !q.turn.CompareAndSwap(turn, turn&^running) {
		c.passTurn()
	}
	if err != nil {
		return seq, c.report(err, call.Op(), seq)
	}
	return seq, nil
}

// doInTurn carries out one call after the operations that were started before it.
func (c *Comm) doInTurn(ctx context.Context, call *engine.Call) (uint64, error) {
	if !c.overlap.Load() {
		c.overlap.Store(true)
	}
	c.mu.Lock()
	t := c.newTask(ctx)
	t.add(call)
	err := c.enqueue(t)
	seq := t.Seq
	c.mu.Unlock()
	if err != nil {
		c.awaitReport()
		return 0, err
	}
	return seq, Work{c: c, seq: seq}.wait(context.Background(), call.Op())
}

// check returns an error if the arguments of a call are wrong.
func (c *Comm) check(ctx context.Context, call *engine.Call) error {
	if ctx == nil {
		return c.refuse(call.Op(), &cause{kind: ErrInvalid, reason: errNilContext.Error()})
	}
	if err := c.admit(call); err != nil {
		return c.refuse(call.Op(), err)
	}
	return nil
}

// admit returns an error if the engine does not accept a call. The caller's goroutine runs it before the call
// is numbered, so a refusal affects no other rank.
func (c *Comm) admit(call *engine.Call) error {
	if c.device != nil {
		// A copy, so that the caller's call escapes to the heap only with a device.
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

// enqueue numbers a task and submits it. c.mu is held.
func (c *Comm) enqueue(t *task) error {
	turn, err := c.number(t)
	if err == nil {
		c.submit(t, turn)
	}
	return err
}

// number assigns the next number to a task. It returns the turn word from before, for submit, which must
// follow before c.mu is released. c.mu is held.
func (c *Comm) number(t *task) (turn uint64, err error) {
	q := &c.queue
	for {
		turn = q.turn.Load()
		if turn&closed != 0 {
			return 0, c.refusal(t.Calls[0].Op())
		}
		if q.turn.CompareAndSwap(turn, turn+numberOne|running|queued) {
			break
		}
	}
	t.Seq = turn/numberOne + 1
	t.queuedAt = c.log.Now()
	t.device = c.device != nil && t.usesDevice()
	return turn, nil
}

// submit begins a numbered task if it has the turn, and queues it otherwise. turn is the turn word
// from before the task was numbered. c.mu is held, but not while the caller launches a task with a
// stream.
func (c *Comm) submit(t *task, turn uint64) {
	q := &c.queue
	free := turn&running == 0
	if t.device && (free || q.deviceHasTurn()) && q.waiting.Empty() {
		q.lastDone = t.Ctx.Done()
		if t.Stream == nil {
			c.submitToDevice(t)
		} else {
			c.submitOnCaller(t)
		}
		return
	}
	c.watch(t, turn)
	q.waiting.Push(t)
	switch {
	case free:
		q.draining = true
		c.lot.Go(q.drain)
	case q.deviceHasTurn():
		c.awaitDevice()
	}
}

// submitToDevice passes a task to the device engine. The device has the turn. c.mu is held.
func (c *Comm) submitToDevice(t *task) {
	c.queue.onDevice.Push(t)
	c.device.Submit(&t.DeviceOp)
}

// submitOnCaller is submitToDevice for a task with a stream, whose caller waits until the device
// has the operation. The caller may wait there for the other ranks, so c.mu is released meanwhile.
func (c *Comm) submitOnCaller(t *task) {
	q := &c.queue
	t.OnCaller, q.submitting = true, true
	q.onDevice.Push(t)
	c.mu.Unlock()
	c.device.Submit(&t.DeviceOp)
	c.mu.Lock()
	q.submitting = false
	c.advance()
	c.lot.Wake(nil)
}

// advance passes the turn on. It submits the device operations that are first in the queue, has
// runQueue run a host operation when the device is idle, or ends the turn. The caller has the turn
// or acts for the device. c.mu is held.
func (c *Comm) advance() {
	q := &c.queue
	for t, ok := q.waiting.First(); ok && t.device; t, ok = q.waiting.First() {
		q.waiting.Drop(1)
		if t.stop != nil {
			t.stop() // the device engine watches the context from now on
			t.stop = nil
		}
		c.submitToDevice(t)
	}
	switch {
	case !q.onDevice.Empty():
		if !q.waiting.Empty() {
			c.awaitDevice()
		}
	case !q.waiting.Empty():
		q.draining = true
		c.lot.Go(q.drain)
	default:
		for turn := q.turn.Load(); !q.turn.CompareAndSwap(turn, turn&^(running|queued)); {
			turn = q.turn.Load()
		}
	}
}

// awaitDevice notifies the device engine that a host operation waits for the submitted operations.
// c.mu is held.
func (c *Comm) awaitDevice() {
	if q := &c.queue; q.awaited == 0 {
		list := q.onDevice.All()
		q.awaited = list[len(list)-1].Seq
		c.device.Await(q.awaited, 1)
	}
}

// deviceBegun notes that the device engine begins the tasks up to number seq.
func (c *Comm) deviceBegun(seq uint64) {
	q := &c.queue
	c.mu.Lock()
	defer c.mu.Unlock()
	for list := q.onDevice.All(); q.begun < len(list) && list[q.begun].Seq <= seq; q.begun++ {
		t := list[q.begun]
		c.log.BeginQueued(t.Seq, t.Calls, t.queuedAt)
	}
}

// deviceLaunched notes that the device has a task with a stream, or that the task failed.
func (c *Comm) deviceLaunched(t *task) {
	c.queue.launched.Store(t.Seq)
	c.lot.Wake(nil)
}

// deviceDone notes that the tasks on the device up to number seq are complete, each with the error err. It is
// the Done of a DeviceOp: the device engine calls it in submission order, without c.mu. After the last task on
// the device it lets host operations begin.
func (c *Comm) deviceDone(seq uint64, err error) {
	q := &c.queue
	c.mu.Lock()
	for t, ok := q.onDevice.First(); ok && t.Seq <= seq; t, ok = q.onDevice.First() {
		q.onDevice.Drop(1)
		q.begun--
		c.log.EndEarlier(t.Seq, err != nil)
		if err != nil {
			c.noteFailed(t.Seq)
		}
		c.putTask(t)
	}
	if err == nil {
		q.finished.Store(seq)
	}
	if q.onDevice.Empty() {
		if q.failedAt.Load() != 0 {
			// Not before: the later operations have failed too, but until now the device
			// may have used their memory.
			q.dead.Store(true)
		}
		if q.awaited != 0 {
			c.device.Await(q.awaited, -1)
			q.awaited = 0
		}
		if !q.submitting {
			c.advance()
		}
	}
	c.mu.Unlock()
	c.lot.Wake(nil)
}

// watch fails the Comm when the context of a task ends before the task has the turn. It does
// nothing if the task before it in the queue has the same context: that task is watched until it
// runs, and its engine watches the context while it runs. c.mu is held.
func (c *Comm) watch(t *task, turn uint64) {
	done := t.Ctx.Done()
	if turn&running != 0 && done != nil && (turn&queued == 0 || done != c.queue.lastDone) {
		op, seq, ctx := t.Calls[0].Op(), t.Seq, t.Ctx
		t.stop = c.lot.AfterFunc(ctx, func() { c.e.Fail(engine.ExpiredInQueue(ctx, op, seq, c.rank)) })
	}
	c.queue.lastDone = done
}

// runQueue runs the host operations that are first in the queue, then passes the turn on. Its
// goroutine exists only while there are such operations.
func (c *Comm) runQueue() {
	q := &c.queue
	c.mu.Lock()
	for t, ok := q.waiting.First(); ok && !t.device; t, ok = q.waiting.First() {
		q.waiting.Drop(1)
		// Before c.mu is released, so that a dump finds the operation in the log or in the queue.
		c.log.BeginQueued(t.Seq, t.Calls, t.queuedAt)
		c.mu.Unlock()
		if t.stop != nil {
			t.stop()
		}
		err := c.e.Run(t.Ctx, t.Seq, t.Calls)
		if c.verifier != nil && err == nil {
			err = c.verify(t.Ctx, t.Seq, t.Calls)
		}
		c.log.End(t.Seq, err != nil)
		if err != nil {
			// The engine refuses the later operations, so they fail too.
			c.noteFailed(t.Seq)
			q.dead.Store(true)
		} else {
			q.finished.Store(t.Seq)
		}
		c.lot.Wake(nil)
		c.mu.Lock()
		c.putTask(t)
	}
	q.draining = false
	c.advance()
	c.mu.Unlock()
	c.lot.Wake(nil)
}

// passTurn ends the turn of a blocking call that found at its end that other operations were
// started or the Comm closed meanwhile.
func (c *Comm) passTurn() {
	c.mu.Lock()
	c.advance()
	c.mu.Unlock()
	c.lot.Wake(nil)
}

// stopAccepting refuses operations from now on. A caller that holds c.mu and has found the Comm
// open can still start one.
func (c *Comm) stopAccepting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.turn.Or(closed)
}

// idle is a wait.Cond: no operation and no message is under way.
type idle Comm

// Ready reports whether the Comm is idle.
func (c *idle) Ready() bool {
	return (c.queue.turn.Load()&running == 0 || c.queue.abandoned.Load()) && c.transfers.active.Load() == 0
}

// progress returns what a dump needs to know of the queue: how far the operations are, and a
// description of those that have not begun. c.mu is held.
func (c *Comm) progress() (p recorder.Progress, waiting []recorder.Op) {
	q := &c.queue
	turn := q.turn.Load()
	p = recorder.Progress{Last: turn / numberOne, Running: turn&running != 0, Posted: c.transfers.posted}
	for _, list := range [...][]*task{q.onDevice.All()[q.begun:], q.waiting.All()} {
		for _, t := range list {
			p.Last = min(p.Last, t.Seq-1)
			waiting = append(waiting, c.log.Describe(t.Seq, t.Calls, t.queuedAt))
		}
	}
	if q.begun > 0 {
		p.Oldest = q.onDevice.All()[0].Seq
	}
	return p, waiting
}

// report returns the public form of an engine's error in an operation of this rank.
func (c *Comm) report(err error, op string, seq uint64) error {
	if f := (*engine.Failure)(nil); errors.As(err, &f) {
		return c.failure(f, op, seq)
	}
	return &Error{Rank: c.rank, Cause: err}
}
