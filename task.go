package tutti

import (
	"context"

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
	on    Stream       // the stream that it is put in order with, if there is one
	sign  uint64       // the device engine's

	queued uint64 // when it was, for the log
}

// fifo is a queue of tasks that keeps its memory.
type fifo struct {
	list []*task
	head int
}

func (q *fifo) empty() bool { return q.head == len(q.list) }

// waiting are those that have not been popped.
func (q *fifo) waiting() []*task { return q.list[q.head:] }

func (q *fifo) push(t *task) {
	if len(q.list) == cap(q.list) && q.head > len(q.list)/2 {
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, t)
}

// first is what pop would return.
func (q *fifo) first() *task {
	if q.empty() {
		return nil
	}
	return q.list[q.head]
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

// newTask returns a task without calls; c.mu is held.
func (c *Comm) newTask(ctx context.Context) *task {
	var t *task
	if n := len(c.tasks); n > 0 {
		t = c.tasks[n-1]
		c.tasks = c.tasks[:n-1]
	} else {
		t = new(task)
	}
	t.ctx = ctx
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

// keepTasks and keepCalls bound what is kept for reuse.
const (
	keepTasks = 256
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
