package tutti

import (
	"context"

	"github.com/tutti-go/tutti/internal/wait"
)

// A Work is a Batch that was started. It is a small value and may be copied,
// kept, waited for from many goroutines, or dropped. The zero Work is complete.
type Work struct {
	c        *Comm
	seq      uint64    // number of the collectives; zero: none
	transfer *transfer // of the messages; nil: none
	use      uint64    // the use of transfer, counted from 1, that carries the messages
}

// Seq returns the number of the Work's collectives on its Comm; see Comm.Seq. It is zero if
// the Work has only messages, and for the zero Work.
func (w Work) Seq() uint64 { return w.seq }

// Wait returns when the operations are complete, with their error. When ctx ends
// before that, Wait returns the context's error and the operations continue.
func (w Work) Wait(ctx context.Context) error {
	if w.c == nil {
		return nil
	}
	if ctx == nil {
		return w.c.refuse("Wait", &cause{kind: ErrInvalid, reason: errNilContext.Error()})
	}
	return w.wait(ctx, batchOp)
}

// Over reports whether the operations are complete, successfully or not.
func (w Work) Over() bool {
	if w.c == nil || w.complete() {
		return true
	}
	if w.c.device != nil {
		w.c.device.Await(w.seq, 0) // so that polling Over does not depend on the engine's pauses
	}
	return false
}

func (w *Work) complete() bool {
	q := &w.c.queue
	if q.finished.Load() < w.seq && !q.dead.Load() {
		return false
	}
	return w.transfer == nil || w.transfer.completed.Load() >= w.use
}

// batchOp is the operation in errors of a Batch that do not name one of its operations.
const batchOp = "Batch"

// wait is Wait for the operation op.
func (w Work) wait(ctx context.Context, op string) error {
	if !w.complete() {
		if err := w.c.waitFor(ctx, w); err != nil {
			return &Error{Op: "Wait", Seq: w.seq, Rank: w.c.rank, Cause: err}
		}
	}
	if w.c.queue.finished.Load() < w.seq || w.transfer != nil && w.transfer.failed.Load() == w.use {
		return w.c.failure(w.c.e.Failure(), op, w.seq)
	}
	return nil
}

// launched waits until the operations of a Batch with a stream are in the device's queue. It
// returns the Work, or the error of operations that failed.
func (w Work) launched() (Work, error) {
	if w.c.queue.launched.Load() < w.seq {
		if err := w.c.waitLaunched(w); err != nil {
			return Work{}, &Error{Op: batchOp, Seq: w.seq, Rank: w.c.rank, Cause: err}
		}
	}
	if w.c.e.Failure() != nil {
		if err := w.wait(context.Background(), batchOp); err != nil {
			return Work{}, err
		}
	}
	return w, nil
}

// A workWait waits until a Work is complete, or only until it is in the device's queue.
type workWait struct {
	*wait.Waiter
	work   Work
	launch bool // wait only until the Work is in the device's queue
}

// Ready reports whether the wait is complete.
func (w *workWait) Ready() bool {
	if q := &w.work.c.queue; w.launch {
		return q.launched.Load() >= w.work.seq || q.dead.Load()
	}
	return w.work.complete()
}

// takeWait returns a workWait, which keepWait keeps for reuse. c.mu is held for both.
func (c *Comm) takeWait() *workWait {
	q := &c.queue
	n := len(q.waits)
	if n == 0 {
		return &workWait{Waiter: wait.NewWaiter(c.lot)}
	}
	w := q.waits[n-1]
	q.waits = q.waits[:n-1]
	return w
}

func (c *Comm) keepWait(w *workWait) {
	w.work, w.launch = Work{}, false
	if len(c.queue.waits) < keepTasks {
		c.queue.waits = append(c.queue.waits, w)
	}
}

// waitLaunched waits until operations are in the device's queue or have failed.
func (c *Comm) waitLaunched(work Work) error {
	c.mu.Lock()
	w := c.takeWait()
	c.mu.Unlock()
	w.work, w.launch = work, true
	w.Begin(context.Background(), 0)
	err := w.For(w)
	w.End()
	c.mu.Lock()
	c.keepWait(w)
	c.mu.Unlock()
	return err
}

// waitFor waits until a Work is complete, on the caller's goroutine. The end of ctx ends the wait, not the
// operation. c.mu guards only the list of reusable waiters.
func (c *Comm) waitFor(ctx context.Context, work Work) error {
	onDevice := c.device != nil && work.seq != 0
	if onDevice {
		c.device.Await(work.seq, 1)
	}
	c.mu.Lock()
	w := c.takeWait()
	c.mu.Unlock()
	w.work = work
	w.Begin(ctx, 0)
	if onDevice && work.seq > c.queue.finished.Load()+1 {
		w.ParkAtOnce() // leaves the CPU to NCCL's threads
	}
	err := w.For(w)
	w.End()
	if onDevice {
		c.device.Await(work.seq, -1)
	}
	c.mu.Lock()
	c.keepWait(w)
	c.mu.Unlock()
	return err
}
