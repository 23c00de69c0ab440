package gpu

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
	"github.com/tutti-go/tutti/nccl"
)

// reportWait is how long a rank waits after an error of NCCL for the report of a lost rank, which is
// the likely reason. After that, the error of NCCL is the failure.
const reportWait = 2 * time.Second

// errTimeout means that DeviceOptions.Timeout has passed.
var errTimeout = errors.New("it took too long")

// connect creates the communicator of all ranks if there is none.
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

// open creates a communicator of some ranks, which all call it. The engine aborts the communicator
// when the group fails, and finalizes it on Close.
//
// Only the creation of a non-blocking communicator can be cancelled. But NCCL launches each
// operation of a non-blocking communicator from a new thread, which takes ten times as long. So
// open returns a blocking child of a non-blocking communicator if this version of NCCL has
// ncclCommSplit.
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

// addComm registers a communicator for abort and Close.
func (e *Engine) addComm(comm *nccl.Comm) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.comms = append(e.comms, comm)
	switch {
	case e.Failure() != nil:
		e.aborts.Go(e.abort) // the watcher, and Close, may have run before
	case len(e.comms) == 1:
		e.watcher.Go(e.watch)
	}
}

// allComms returns the registered communicators.
func (e *Engine) allComms() []*nccl.Comm {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.comms)
}

// boundedContext returns the operation's context, which also ends, with a cause, at the deadline
// and when the group fails. release ends its goroutine.
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

// watch aborts the communicators when the group fails, also while this rank uses them.
func (e *Engine) watch() {
	select {
	case <-e.Failed():
		e.abort()
	case <-e.closing:
	}
}

// abort aborts all communicators at once, because NCCL's abort of one may wait for another. It
// returns after abortTimeout even if NCCL hangs.
func (e *Engine) abort() {
	comms := e.allComms()
	ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
	defer cancel()
	if err := nccl.AbortAll(ctx, comms...); err != nil && e.opt.Logger != nil {
		e.opt.Logger.Warn("a communicator could not be aborted cleanly", "device", e.dev.Ordinal(), "error", err)
	}
}

// await waits until the device has reached an event.
func (o *operation) await(event *cuda.Event, comm *nccl.Comm) error {
	poller := wait.Poller{SpinAllowed: o.e.spinAllowed}
	for checkDue := false; ; checkDue = poller.Pause() {
		if over, err := o.reached(event, comm, checkDue); over || err != nil {
			return err
		}
	}
}

// reached reports whether the device has reached an event. It returns an error if the wait must
// end: of the context, the group or NCCL, or at the deadline. checkDue says that there is time for
// the last two.
func (o *operation) reached(event *cuda.Event, comm *nccl.Comm, checkDue bool) (bool, error) {
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
	if !checkDue {
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

// limit returns the deadline of an operation that begins now. Zero means none.
func (e *Engine) limit() time.Time {
	if e.opt.Timeout <= 0 {
		return time.Time{}
	}
	return time.Now().Add(e.opt.Timeout)
}

// pastDeadline reports whether the operation's deadline has passed.
func (o *operation) pastDeadline() bool { return !o.deadline.IsZero() && time.Now().After(o.deadline) }

// waits returns what the operation waits for. If the device has the operation and others follow, a
// rank that has not arrived at one of them is the likely reason.
func (o *operation) waits() engine.Facts {
	switch {
	case o.message != nil:
		return o.message.Awaited()
	case o.queued:
		return engine.Facts{Wait: engine.Wait{Phase: engine.Queued}}
	}
	w := engine.Wait{Phase: engine.DeviceAtWork, Behind: o.e.Behind()}
	if o.ahead {
		w.Phase = engine.DeviceAhead
	}
	return engine.Facts{Device: o.e.dev.String(), Wait: w}
}

// fail fails the group because of err and returns the first failure of the group. For an error of NCCL it
// first waits up to reportWait, because the cause may be a rank whose loss is reported soon. It may run on
// any goroutine.
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
	f.Facts = o.waits()
	switch {
	case o.ctx.Err() != nil:
		f.Interrupt(o.ctx, o.ctx.Err(), e.opt.Timeout)
	case o.pastDeadline():
		f.Interrupt(o.ctx, wait.ErrTimeout, e.opt.Timeout)
	default:
		f.Kind = engine.ErrAborted
		f.Facts = engine.Facts{Event: engine.DeviceFailed, Device: e.dev.String(), Text: err.Error()}
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

// first returns the first failure of the group, after Fail was called with f.
func (e *Engine) first(f *engine.Failure) error {
	if known := e.failure(); known != nil {
		return known
	}
	return f
}

// failure returns the first failure of the group, or nil. If it returns a failure, Failed is
// closed.
func (e *Engine) failure() *engine.Failure {
	f := e.Failure()
	if f != nil {
		<-e.Failed()
	}
	return f
}

// quiesce aborts the communicators and waits until the device has reached an event, so that it no longer uses
// the memory of the operations before it. It returns engine.AbandonAfter after the first such call at the
// latest, even if the driver or NCCL does not return. Its goroutine then stays there and keeps inUse
// read-locked. e.mu guards quiesceBy.
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
