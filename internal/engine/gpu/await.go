package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
	"github.com/tutti-go/tutti/nccl"
)

// reportWait is how long a rank that NCCL has let down waits to be told who is
// gone, before it blames NCCL.
const reportWait = 2 * time.Second

// errTimeout is that the group's own timeout has passed.
var errTimeout = errors.New("it took too long")

// connect makes the communicator, if there is none.
func (o *operation) connect() error {
	e := o.e
	if e.comm != nil {
		return nil
	}
	comm, err := o.open(e.id, e.rank, e.size)
	if err == nil {
		e.comm = comm
	}
	return err
}

// open makes a communicator of some ranks, which do the same. The engine aborts
// it when the group fails, and ends it.
//
// To make one can be given up only if it does not block; but such a one launches
// every operation from a new thread, in ten times the time. So it has a child
// that blocks, where NCCL has children.
func (o *operation) open(id nccl.UniqueID, rank, size int) (*nccl.Comm, error) {
	e := o.e
	ctx, release := o.boundedContext()
	defer release()
	comm, err := e.lib.Init(ctx, e.dev, id, rank, size, nccl.Config{NonBlocking: true})
	if err == nil {
		e.addComm(comm)
		child, wrong := comm.Split(ctx, 0, rank, nccl.Config{})
		if wrong == nil {
			e.addComm(child)
			comm = child
		} else if !errors.As(wrong, new(*cuda.VersionError)) {
			err = wrong
		}
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && o.ctx.Err() == nil {
			return nil, cause
		}
		return nil, err
	}
	return comm, nil
}

// keep notes a communicator that is to be aborted when the group fails.
func (e *Engine) addComm(comm *nccl.Comm) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.comms = append(e.comms, comm)
	switch {
	case e.Failure() != nil:
		e.aborts.Go(e.abort) // the watcher may have been too early for this one, and so may Close
	case len(e.comms) == 1:
		e.watcher.Go(e.watch)
	}
}

// kept are the communicators there are.
func (e *Engine) allComms() []*nccl.Comm {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.comms)
}

// bounded returns the operation's context, which also ends, with the cause, when
// its time is over or the group has failed. After release nothing of it is left.
func (o *operation) boundedContext() (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(o.ctx)
	timer := time.NewTimer(time.Hour)
	late := timer.C
	if o.deadline.IsZero() {
		late = nil
	} else {
		timer.Reset(time.Until(o.deadline))
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-o.e.Failed():
			cancel(o.e.Failure())
		case <-late:
			cancel(errTimeout)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		timer.Stop()
		cancel(nil)
		<-over
	}
}

// watch aborts the communicators as soon as the group has failed, whatever this
// rank is doing with them.
func (e *Engine) watch() {
	select {
	case <-e.Failed():
		e.abort()
	case <-e.closing:
	}
}

// abort ends what runs on the communicators, all together, because NCCL's abort
// of one may wait for another. NCCL may hang in it; then they are left to
// themselves.
func (e *Engine) abort() {
	comms := e.allComms()
	ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
	defer cancel()
	if err := nccl.AbortAll(ctx, comms...); err != nil && e.opt.Logger != nil {
		e.opt.Logger.Warn("a communicator could not be aborted cleanly", "device", e.dev.Ordinal(), "error", err)
	}
}

// await waits until the device is done with what stands before an event.
func (o *operation) await(event *cuda.Event, comm *nccl.Comm) error {
	pace := wait.Poller{SpinAllowed: o.e.spinAllowed}
	for look := false; ; look = pace.Pause() {
		if over, err := o.reached(event, comm, look); over || err != nil {
			return err
		}
	}
}

// reached reports whether the device is done with what stands before an event, or why
// nobody waits for that any more.
func (o *operation) reached(event *cuda.Event, comm *nccl.Comm, look bool) (bool, error) {
	e := o.e
	if done, err := event.Done(); done || err != nil {
		return done, err
	}
	select {
	case <-o.ctx.Done():
		return false, o.ctx.Err()
	case <-e.Failed():
		return false, e.Failure()
	default:
	}
	if !look {
		return false, nil
	}
	if o.pastDeadline() {
		return false, errTimeout
	}
	if comm != nil {
		return false, comm.AsyncError()
	}
	return false, nil
}

// late reports whether the operation's time is over.
func (o *operation) pastDeadline() bool { return !o.deadline.IsZero() && time.Now().After(o.deadline) }

// atWork tells what is known of an operation that the device has.
func (o *operation) atWork() string {
	e := o.e
	text := fmt.Sprintf("%v was at work, and all ranks had begun", e.dev)
	if o.ahead {
		text = fmt.Sprintf("%v was at work, and all ranks had started the operation", e.dev)
	}
	// If others follow, who does not come to one of them is the likely reason.
	if behind := e.Behind(); len(behind) > 0 {
		text += "; not arrived at one after it: " + engine.Ranks(behind)
	}
	return text
}

// fail ends the group, and returns the first cause.
func (o *operation) fail(err error) error {
	e := o.e
	f := (*engine.Failure)(nil)
	if errors.As(err, &f) {
		return f
	}
	if known := e.failure(); known != nil {
		return known
	}
	f = &engine.Failure{Op: o.name, Seq: o.seq, Rank: e.rank, Err: err}
	where := o.where
	if where == "" {
		where = o.atWork()
	}
	switch {
	case o.ctx.Err() != nil:
		f.Interrupt(o.ctx, o.ctx.Err(), e.opt.Timeout, where)
	case o.pastDeadline():
		f.Interrupt(o.ctx, wait.ErrTimeout, e.opt.Timeout, where)
	default:
		f.Kind, f.Reason = engine.ErrAborted, fmt.Sprintf("%v has failed on rank %d: %v", e.dev, e.rank, err)
		t := time.NewTimer(reportWait)
		defer t.Stop()
		if errors.As(err, new(*nccl.Error)) {
			select {
			case <-e.Failed():
			case <-t.C:
			}
		}
	}
	e.Fail(f)
	return e.first(f)
}

// first is the group's cause, after Fail was called with f.
func (e *Engine) first(f *engine.Failure) error {
	if known := e.failure(); known != nil {
		return known
	}
	return f
}

// failure is the group's cause, nil if it has none. When it returns one, the
// group has ended for everyone who waits for that, too.
func (e *Engine) failure() *engine.Failure {
	f := e.Failure()
	if f != nil {
		<-e.Failed()
	}
	return f
}

// quiet aborts the communicators and waits until the device no longer uses the memory of what
// stands before an event. It waits until engine.AbandonAfter after the first such call: the caller gets its
// error then even if the driver or NCCL does not return.
func (e *Engine) quiesce(event *cuda.Event) {
	e.mu.Lock()
	first := e.quiesceBy.IsZero()
	if first {
		e.quiesceBy = time.Now().Add(engine.AbandonAfter)
	}
	left := time.Until(e.quiesceBy)
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), left)
	done := make(chan struct{})
	go func() {
		e.inUse.RLock()
		defer e.inUse.RUnlock()
		defer close(done)
		defer cancel()
		if over, err := event.Done(); over || err != nil {
			return
		}
		e.abort()
		// The event's error is the operation's, which has been reported.
		_ = event.Wait(ctx)
	}()
	select {
	case <-done:
	case <-time.After(left):
		if log := e.opt.Logger; first && log != nil {
			log.Warn("the device may still use the memory of an operation that has failed", "device", e.dev.Ordinal())
		}
	}
}
