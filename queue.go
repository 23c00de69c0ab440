package tutti

import (
	"context"
	"errors"

	"github.com/tutti-go/tutti/internal/engine"
)

// A task is an operation that waits for its turn. It holds copies of all that
// its caller passed, except the buffers' contents.
type task struct {
	ctx   context.Context
	seq   uint64
	calls []engine.Call
	parts []engine.Mem // what the calls' lists of parts point into
	stop  func() bool  // ends the watch over ctx, if there is one
}

// fifo is a queue of tasks that keeps its memory.
type fifo struct {
	list []*task
	head int
}

func (q *fifo) empty() bool { return q.head == len(q.list) }

func (q *fifo) push(t *task) {
	if len(q.list) == cap(q.list) && q.head > len(q.list)/2 {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, t)
}

// pop returns nil when there is nothing.
func (q *fifo) pop() *task {
	if q.empty() {
		q.list, q.head = q.list[:0], 0
		return nil
	}
	t := q.list[q.head]
	q.list[q.head] = nil
	q.head++
	return t
}

var errNilContext = errors.New("the context is nil")

// do carries out one call, on the caller's goroutine if nothing is before it.
func (c *Comm) do(ctx context.Context, call engine.Call) (uint64, error) {
	if err := c.check(ctx, &call); err != nil {
		return 0, err
	}
	c.mu.Lock()
	if err := c.refusal(call.Op()); err != nil {
		c.mu.Unlock()
		return 0, err
	}
	c.started++
	seq := c.started
	c.active.Add(1)
	if c.busy {
		t := c.newTask(ctx, seq)
		t.add(&call)
		c.enqueue(t)
		c.mu.Unlock()
		return seq, Work{c: c, seq: seq}.wait(context.Background())
	}
	c.busy = true
	c.last = ctx.Done()
	c.mu.Unlock()

	c.call[0] = call
	err := c.e.Run(ctx, seq, c.call[:])
	c.call[0] = engine.Call{}

	c.mu.Lock()
	c.over(seq, err)
	if c.busy = !c.queue.empty(); c.busy {
		go c.drain()
	}
	c.mu.Unlock()
	c.lot.Wake()
	if err != nil {
		return seq, c.report(err)
	}
	return seq, nil
}

// check finds out whether the arguments can be right.
func (c *Comm) check(ctx context.Context, call *engine.Call) error {
	if ctx == nil {
		return c.refuse(call.Op(), &cause{kind: ErrInvalid, reason: errNilContext.Error()})
	}
	if err := call.Check(c.rank, c.size); err != nil {
		return c.refuse(call.Op(), err)
	}
	return nil
}

// newTask returns a task without calls; c.mu is held.
func (c *Comm) newTask(ctx context.Context, seq uint64) *task {
	var t *task
	if n := len(c.tasks); n > 0 {
		t = c.tasks[n-1]
		c.tasks = c.tasks[:n-1]
	} else {
		t = new(task)
	}
	t.ctx, t.seq = ctx, seq
	return t
}

// add copies a call into the task.
func (t *task) add(call *engine.Call) {
	t.calls = append(t.calls, *call)
	last := &t.calls[len(t.calls)-1]
	last.DstParts = t.copyParts(call.DstParts)
	last.SrcParts = t.copyParts(call.SrcParts)
}

func (t *task) copyParts(list []engine.Mem) []engine.Mem {
	if list == nil {
		return nil
	}
	at := len(t.parts)
	t.parts = append(t.parts, list...)
	// Capped, so that a later append cannot be seen through it.
	return t.parts[at:len(t.parts):len(t.parts)]
}

// enqueue puts a task behind those that wait, and watches over its context:
// a deadline counts also while the operation waits for its turn. A task whose
// predecessor has the same context needs no watch of its own, because the
// predecessor is watched until it runs, and watches while it runs. c.mu is
// held.
func (c *Comm) enqueue(t *task) {
	done := t.ctx.Done()
	if c.busy && done != nil && done != c.last {
		op, seq, ctx := t.calls[0].Op(), t.seq, t.ctx
		t.stop = context.AfterFunc(ctx, func() { c.expire(ctx, op, seq) })
	}
	c.last = done
	c.queue.push(t)
}

// expire poisons the Comm because the context of an operation ended before it
// had its turn.
func (c *Comm) expire(ctx context.Context, op string, seq uint64) {
	f := &engine.Failure{Kind: ErrAborted, Op: op, Seq: seq, Rank: c.rank, Err: ctx.Err()}
	f.Reason = "the context was cancelled while the operation waited for those before it"
	if errors.Is(f.Err, context.DeadlineExceeded) {
		f.Kind = ErrTimeout
		f.Reason = "the context's deadline passed while the operation waited for those before it"
	}
	c.e.Fail(f)
}

// runQueue runs tasks until there are none. It is the goroutine behind
// operations that nobody blocks for; it lives only as long as there are any.
func (c *Comm) runQueue() {
	c.mu.Lock()
	for t := c.queue.pop(); t != nil; t = c.queue.pop() {
		c.mu.Unlock()

		if t.stop != nil {
			t.stop()
		}
		err := c.e.Run(t.ctx, t.seq, t.calls)

		c.mu.Lock()
		c.over(t.seq, err)
		c.putTask(t)
		c.mu.Unlock()
		c.lot.Wake()
		c.mu.Lock()
	}
	c.busy = false
	c.mu.Unlock()
}

// over counts an operation as done; c.mu is held. When one has failed, those
// behind it fail too: the engine refuses them.
func (c *Comm) over(seq uint64, err error) {
	if err != nil {
		c.dead.Store(true)
	} else {
		c.finished.Store(seq)
	}
	c.active.Add(-1)
}

// keepTasks and keepCalls bound what is kept for reuse.
const (
	keepTasks = 64
	keepCalls = 1024
)

func (c *Comm) putTask(t *task) {
	if len(c.tasks) >= keepTasks || cap(t.calls) > keepCalls || cap(t.parts) > keepCalls {
		return
	}
	clear(t.calls)
	clear(t.parts)
	*t = task{calls: t.calls[:0], parts: t.parts[:0]}
	c.tasks = append(c.tasks, t)
}

// report is the public form of what an engine returned.
func (c *Comm) report(err error) error {
	if f := (*engine.Failure)(nil); errors.As(err, &f) {
		return c.failure(f)
	}
	return &Error{Rank: c.rank, Cause: err}
}
