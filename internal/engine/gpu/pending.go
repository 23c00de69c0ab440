package gpu

import (
	"context"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// A request describes an operation to Engine.launch.
type request struct {
	ctx    context.Context
	seq    uint64
	calls  []engine.Call
	stream any // the caller's *cuda.Stream that the operation is ordered with; nil: none
	// coalesce lets the operation share the completion event of the next one. Both then end
	// with the same error.
	coalesce bool
	// pending is the result of the launch. Each must be settled, in order. It is nil if the
	// operation shares the event of the next one.
	pending *pending
}

// A pending is a launched operation that may be incomplete, together with the operations that
// share its completion event. An operation whose launch failed is a pending with an error. One
// goroutine at a time uses it.
type pending struct {
	operation
	event    *cuda.Event // recorded after the operation if recorded is set; otherwise kept for reuse
	recorded bool
	polled   bool // poll was called
	complete bool
	err      error
}

// launch launches operations in which the device has a part. All ranks agree on each operation,
// then the device gets its part. launch does not wait for earlier operations to complete.
func (e *Engine) launch(list []request, next []uint64) {
	e.inUse.RLock()
	defer e.inUse.RUnlock()
	for i := range list {
		list[i].pending = e.launchOne(&list[i], next, i+1 < len(list))
	}
}

// launchOne launches one operation. followed reports that the next one is launched at once. It
// returns nil if the operation shares the event of the next one.
func (e *Engine) launchOne(r *request, next []uint64, followed bool) *pending {
	if e.abandoned.Load() {
		return &pending{operation: operation{e: e}, err: e.failure()}
	}
	p, shared := e.coalesced, e.coalesced != nil
	if e.coalesced = nil; !shared {
		p = e.takePending()
	}
	o := &p.operation
	*o = operation{e: e, ctx: r.ctx, seq: r.seq, calls: r.calls, name: callName(r.calls)}
	if r.stream != nil {
		o.stream = r.stream.(*cuda.Stream) // AdmitStream has checked it
	}
	o.deadline = e.limit()
	var err error
	if f := e.failure(); f != nil {
		err = f
	} else {
		err = o.agree(next)
	}
	if err == nil && !o.ahead {
		err = o.onHost()
	}
	coalesce := err == nil && r.coalesce && e.agreed > 0 // then the next one certainly follows
	onDevice := err == nil && (o.stream != nil || o.onDevice)
	if onDevice {
		if err = p.execute(coalesce && followed); err != nil {
			err = o.fail(err) // at once, so that the other ranks are notified
		}
	}
	if onDevice && err == nil && coalesce {
		e.coalesced = p
		return nil
	}
	if (o.enqueued || shared) && !p.recorded {
		if wrong := p.record(); err == nil && wrong != nil {
			err = o.fail(wrong)
		}
	}
	p.err = err
	return p
}

// callName returns the name of an operation that consists of calls, for errors.
func callName(calls []engine.Call) string {
	if len(calls) == 1 {
		return calls[0].Op()
	}
	return "Batch"
}

// execute passes the device's part to NCCL, or carries it out through host memory. If hold is set,
// NCCL may enqueue the operation together with the next one.
func (p *pending) execute(hold bool) error {
	o := &p.operation
	if o.e.stage == nil {
		return o.launch(hold)
	}
	// The event is recorded after everything in the stream, even after a failure.
	err := first(o.throughHost(), p.record())
	if err == nil {
		err = o.await(p.event, nil) // the next operation needs the staging slots
	}
	return err
}

// record records an event after the operation and after the operations that share the event. The
// caller's stream, if there is one, waits for that event.
func (p *pending) record() (err error) {
	e := p.e
	p.recorded = true
	if p.event == nil {
		if p.event, err = e.dev.NewEvent(); err != nil {
			return err
		}
	}
	e.guard.begin(&p.operation)
	err = first(e.flush(), p.event.Record(e.stream), p.holdStream(p.event))
	return first(err, e.guard.end())
}

// agreedAhead returns the number of next operations that all ranks are known to have in common. It
// is for the goroutine that launches.
func (e *Engine) agreedAhead() int {
	if e.abandoned.Load() {
		return 0
	}
	return e.agreed
}

// poll reports whether the operation is complete, successfully or not. checkDue says that there
// is time to check the deadline and NCCL's asynchronous error as well.
func (p *pending) poll(checkDue bool) bool {
	p.e.inUse.RLock()
	defer p.e.inUse.RUnlock()
	return p.pollLocked(checkDue)
}

// pollLocked is poll. e.inUse is read-locked. Only the goroutine that waits for p calls it: the caller of Run
// or the completion goroutine. An error fails the group and completes the operation.
func (p *pending) pollLocked(checkDue bool) bool {
	if p.complete || p.err != nil || !p.recorded {
		return true
	}
	if !p.polled {
		p.polled, p.deadline = true, p.e.limit() // the timeout begins when the earlier operations are complete
	}
	p.e.pollGuard.begin(&p.operation)
	complete, err := p.reached(p.event, p.e.comm, checkDue)
	if err = first(err, p.e.pollGuard.end()); err != nil {
		p.err = p.fail(err)
	}
	p.complete = complete || err != nil
	return p.complete
}

// settle waits until the operation is complete and returns the error that Run returns. It must be
// called once, and recycles p.
func (p *pending) settle() error {
	p.e.inUse.RLock()
	defer p.e.inUse.RUnlock()
	return p.settleLocked()
}

// settleLocked is settle. e.inUse is read-locked. If the group has failed, it returns the first failure, and
// first waits until the device no longer uses the operation's memory.
func (p *pending) settleLocked() error {
	e := p.e
	poller := wait.Poller{SpinAllowed: e.spinAllowed}
	for checkDue := false; !p.pollLocked(checkDue); {
		checkDue = poller.Pause()
	}
	err := p.err
	if err == nil {
		if f := e.failure(); f != nil {
			// A rank that failed may have changed memory that other ranks still read.
			err = f
		}
	}
	if err != nil && p.recorded {
		e.quiesce(p.event)
	}
	e.putPending(p)
	return err
}

// takePending returns a pending for one operation; putPending keeps it for reuse.
func (e *Engine) takePending() *pending {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.pendings); n > 0 {
		p := e.pendings[n-1]
		e.pendings = e.pendings[:n-1]
		return p
	}
	return new(pending)
}

func (e *Engine) putPending(p *pending) {
	*p = pending{event: p.event}
	e.mu.Lock()
	freed := e.freed
	if !freed {
		e.pendings = append(e.pendings, p)
	}
	e.mu.Unlock()
	if freed && p.event != nil {
		_ = p.event.Close() // the goroutine returned from the driver after Close
	}
}
