package tutti

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
)

// A task is an operation in the queue. It holds copies of everything that its caller passed,
// except the contents of the buffers.
type task struct {
	engine.DeviceOp              // its functions are set only on a Comm with a device
	parts           []engine.Mem // backing array of the lists of parts of Calls
	stop            func() bool  // ends the watch over Ctx; nil if there is none
	device          bool         // the device engine carries the task out, at least in part
	queuedAt        uint64       // time of queueing, as the log counts it
}

// newTask returns a task without calls; putTask keeps it for reuse. On a Comm with a device it has the
// functions of a DeviceOp. The device engine's goroutines call them without c.mu; the caller of Submit may
// call Begun and Launched for a task with OnCaller. c.mu is held.
func (c *Comm) newTask(ctx context.Context) *task {
	q := &c.queue
	var t *task
	if n := len(q.tasks); n > 0 {
		t = q.tasks[n-1]
		q.tasks = q.tasks[:n-1]
	} else {
		t = new(task)
		if c.device != nil {
			t.Begun = func() { c.deviceBegun(t.Seq) }
			t.Launched = func() { c.deviceLaunched(t) }
			t.Done = func(err error) { c.deviceDone(t.Seq, err) }
		}
	}
	t.Ctx = ctx
	return t
}

// add copies a call into the task.
func (t *task) add(call *engine.Call) {
	t.Calls = append(t.Calls, *call)
	last := &t.Calls[len(t.Calls)-1]
	last.DstParts = t.copyParts(call.DstParts)
	last.SrcParts = t.copyParts(call.SrcParts)
}

func (t *task) copyParts(list []engine.Mem) []engine.Mem {
	if list == nil {
		return nil
	}
	at := len(t.parts)
	t.parts = append(t.parts, list...)
	// The capacity ends with the list, so that a later append does not become visible in it.
	return t.parts[at:len(t.parts):len(t.parts)]
}

// usesDevice reports whether the device engine must carry the task out.
func (t *task) usesDevice() bool {
	if t.Stream != nil {
		return true
	}
	for i := range t.Calls {
		if t.Calls[i].OnDevice() {
			return true
		}
	}
	return false
}

// keepTasks and keepCalls bound the number of tasks that are kept for reuse, and the number of
// calls that each of them has room for.
const (
	keepTasks = 256
	keepCalls = 1024
)

// putTask keeps a completed task for reuse, unless it is large or many are kept. The caller holds
// c.mu.
func (c *Comm) putTask(t *task) {
	if len(c.queue.tasks) >= keepTasks || cap(t.Calls) > keepCalls || cap(t.parts) > keepCalls {
		return
	}
	clear(t.Calls)
	clear(t.parts)
	*t = task{
		DeviceOp: engine.DeviceOp{Calls: t.Calls[:0], Begun: t.Begun, Launched: t.Launched, Done: t.Done},
		parts:    t.parts[:0],
	}
	c.queue.tasks = append(c.queue.tasks, t)
}
