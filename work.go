package tutti

import (
	"context"

	"github.com/tutti-go/tutti/internal/wait"
)

// A Work is a Batch that was started. It is a small value and may be copied,
// kept, waited for from many goroutines, or dropped. The zero Work is over.
type Work struct {
	c      *Comm
	seq    uint64  // of the collectives; zero: none
	flight *flight // of the messages; nil: none
	trip   uint64  // how often flight will have landed when this is over
}

// Wait returns when the operations are over, with their error. When ctx ends
// before that, it returns that context's error; the operations go on.
func (w Work) Wait(ctx context.Context) error {
	if w.c == nil {
		return nil
	}
	if ctx == nil {
		return w.c.refuse("Wait", &cause{kind: ErrInvalid, reason: errNilContext.Error()})
	}
	return w.wait(ctx)
}

// Over reports whether the operations are over, well or not.
func (w Work) Over() bool {
	if w.c == nil || w.over() {
		return true
	}
	w.c.bell.Ring() // who asks again should be told
	return false
}

func (w *Work) over() bool {
	c := w.c
	if c.finished.Load() < w.seq && !c.dead.Load() {
		return false
	}
	return w.flight == nil || w.flight.landed.Load() >= w.trip
}

func (w Work) wait(ctx context.Context) error {
	if !w.over() {
		if err := w.c.waitFor(ctx, w); err != nil {
			return &Error{Op: "Wait", Seq: w.seq, Rank: w.c.rank, Cause: err}
		}
	}
	if w.c.finished.Load() < w.seq || w.flight != nil && w.flight.failed.Load() == w.trip {
		return w.c.failure(w.c.e.Failure())
	}
	return nil
}

// workWait waits for a Work.
type workWait struct {
	*wait.Waiter
	work Work
}

// Ready reports whether the Work is over.
func (w *workWait) Ready() bool { return w.work.over() }

// waitFor waits with a reused waiter.
func (c *Comm) waitFor(ctx context.Context, work Work) error {
	c.mu.Lock()
	var w *workWait
	if n := len(c.waits); n > 0 {
		w = c.waits[n-1]
		c.waits = c.waits[:n-1]
	} else {
		w = &workWait{Waiter: wait.NewWaiter(c.lot)}
	}
	c.want(work.seq)
	others := c.device != nil && work.seq > c.finished.Load()+1
	c.mu.Unlock()
	w.work = work
	w.Begin(ctx, 0)
	if others {
		w.Patient() // the processor is the device's threads'
	}
	err := w.For(w)
	w.End()
	w.work = Work{}
	c.mu.Lock()
	c.unwant(work.seq)
	if len(c.waits) < keepTasks {
		c.waits = append(c.waits, w)
	}
	c.mu.Unlock()
	return err
}
