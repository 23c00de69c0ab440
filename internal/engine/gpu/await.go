package gpu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/nccl"
)

// hearsay is how long a rank that NCCL has let down waits to be told who is
// gone, before it blames NCCL.
const hearsay = 2 * time.Second

// errLate is that the group's own timeout has passed.
var errLate = errors.New("it took too long")

// connect makes the communicator, if there is none.
func (o *operation) connect() error {
	e := o.e
	if e.comm != nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(o.ctx)
	defer cancel(nil)
	var late <-chan time.Time
	if !o.latest.IsZero() {
		t := time.NewTimer(time.Until(o.latest))
		defer t.Stop()
		late = t.C
	}
	over := make(chan struct{})
	defer func() { <-over }()
	done, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		defer close(over)
		select {
		case <-e.Failed():
			cancel(e.Failure())
		case <-late:
			cancel(errLate)
		case <-done.Done():
		}
	}()
	// A communicator that blocks could be left behind for ever, in this call or
	// in its first collective, by ranks that do not come.
	comm, err := e.lib.Init(ctx, e.dev, e.id, e.rank, e.size, nccl.Config{NonBlocking: true})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && o.ctx.Err() == nil {
			return cause
		}
		return err
	}
	e.comm = comm
	e.watcher.Go(e.watch)
	return nil
}

// watch aborts the communicator as soon as the group has failed, whatever this
// rank is doing with it.
func (e *Engine) watch() {
	select {
	case <-e.Failed():
		e.abort()
	case <-e.closing:
	}
}

// abort ends what runs on the communicator. NCCL may hang in it; then it is left
// to itself.
func (e *Engine) abort() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := e.comm.Abort(ctx); err != nil && e.opt.Logger != nil {
		e.opt.Logger.Warn("a communicator could not be aborted cleanly", "device", e.dev.Ordinal(), "error", err)
	}
}

// guard aborts the communicator if the operation's time is over while NCCL is in
// a call, until the returned function is called, which tells if it has.
func (o *operation) guard() (release func() error) {
	stop := context.AfterFunc(o.ctx, o.e.abort)
	inTime := func() bool { return true }
	if !o.latest.IsZero() {
		inTime = time.AfterFunc(time.Until(o.latest), o.e.abort).Stop
	}
	return func() error {
		switch wanted, soon := stop(), inTime(); {
		case !wanted:
			return o.ctx.Err()
		case !soon:
			return errLate
		}
		return nil
	}
}

// await waits until the device has reached an event of the operation's.
func (o *operation) await(ev *cuda.Event) error {
	e := o.e
	pause := 2 * time.Microsecond
	for {
		ok, err := ev.Done()
		if ok || err != nil {
			return err
		}
		select {
		case <-o.ctx.Done():
			return o.ctx.Err()
		case <-e.Failed():
			return e.Failure()
		default:
		}
		if pause < 32*time.Microsecond {
			runtime.Gosched()
		} else {
			if !o.latest.IsZero() && time.Now().After(o.latest) {
				return errLate
			}
			if e.comm != nil {
				if err := e.comm.AsyncError(); err != nil {
					return err
				}
			}
			time.Sleep(pause)
		}
		pause = min(pause+pause/8+1, time.Millisecond)
	}
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
	late := !o.latest.IsZero() && time.Now().After(o.latest)
	f = &engine.Failure{Op: o.name, Seq: o.seq, Rank: e.rank, Err: err}
	switch where := fmt.Sprintf("%v was at work, and all ranks had begun", e.dev); {
	case errors.Is(o.ctx.Err(), context.DeadlineExceeded):
		f.Kind, f.Err, f.Reason = engine.ErrTimeout, o.ctx.Err(), "the context's deadline has passed: "+where
	case o.ctx.Err() != nil:
		f.Kind, f.Err = engine.ErrAborted, o.ctx.Err()
		f.Reason = fmt.Sprintf("the context was cancelled (%v): %s", context.Cause(o.ctx), where)
	case late:
		f.Kind, f.Err = engine.ErrTimeout, nil
		f.Reason = fmt.Sprintf("not done after %v: %s", e.opt.Timeout, where)
	default:
		f.Kind, f.Reason = engine.ErrAborted, fmt.Sprintf("%v has failed on rank %d: %v", e.dev, e.rank, err)
		t := time.NewTimer(hearsay)
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

// quiet aborts the communicator and waits until the device no longer uses the
// operation's memory.
func (o *operation) quiet() {
	e := o.e
	if e.comm != nil {
		e.abort()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// Its error is that of the operation, which has been told.
	_ = e.done.Wait(ctx)
}
