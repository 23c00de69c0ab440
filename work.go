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
	w.c.bell.Signal() // who asks again should be told
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

// launched waits until the operations of a Batch with a stream are in the device's queue, and
// returns the Work, or the error of operations that are not.
func (w Work) launched() (Work, error) {
	if w.c.launched.Load() < w.seq {
		if err := w.c.waitLaunched(w); err != nil {
			return Work{}, &Error{Op: "Batch", Seq: w.seq, Rank: w.c.rank, Cause: err}
		}
	}
	if w.c.e.Failure() != nil {
		if err := w.wait(context.Background()); err != nil {
			return Work{}, err
		}
	}
	return w, nil
}

// workWait waits for a Work: until it is over, or only until it is in the device's queue.
type workWait struct {
	*wait.Waiter
	work   Work
	launch bool
}

// Ready reports whether the wait is over.
func (w *workWait) Ready() bool {
	if c := w.work.c; w.launch {
		return c.launched.Load() >= w.work.seq || c.dead.Load()
	}
	return w.work.over()
}

// takeWait returns a waiter, which keepWait keeps for reuse. c.mu is held, as it is there.
func (c *Comm) takeWait() *workWait {
	n := len(c.waits)
	if n == 0 {
		return &workWait{Waiter: wait.NewWaiter(c.lot)}
	}
	w := c.waits[n-1]
	c.waits = c.waits[:n-1]
	return w
}

func (c *Comm) keepWait(w *workWait) {
	w.work, w.launch = Work{}, false
	if len(c.waits) < keepTasks {
		c.waits = append(c.waits, w)
	}
}

// waitLaunched waits until operations are in the device's queue, or have failed.
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

// waitFor waits with a reused waiter.
func (c *Comm) waitFor(ctx context.Context, work Work) error {
	c.mu.Lock()
	w := c.takeWait()
	c.want(work.seq)
	others := c.device != nil && work.seq > c.finished.Load()+1
	c.mu.Unlock()
	w.work = work
	w.Begin(ctx, 0)
	if others {
		w.ParkAtOnce() // the processor is the device's threads'
	}
	err := w.For(w)
	w.End()
	c.mu.Lock()
	c.unwant(work.seq)
	c.keepWait(w)
	c.mu.Unlock()
	return err
}
