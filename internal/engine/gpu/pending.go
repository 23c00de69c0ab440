package gpu

import (
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// A pending operation is one that the device has, and maybe not done, or that has
// failed already.
type pending struct {
	operation
	event *cuda.Event // behind it, if it is marked; else kept for reuse
	mark  bool
	asked bool // whether it is over
	over  bool
	err   error
}

// Launch begins operations in which the device has a part: all ranks agree that
// they do the same, and the device is given its part. It does not wait for those
// before them to be done.
func (e *Engine) Launch(list []engine.Launch, next []uint64) {
	e.inUse.RLock()
	defer e.inUse.RUnlock()
	for i := range list {
		if p := e.begin(&list[i], next, i+1 < len(list)); p != nil {
			list[i].Pending = p
		}
	}
}

// begin begins one, which others may follow at once. It returns nil if the operation is joined
// with the next one.
func (e *Engine) begin(l *engine.Launch, next []uint64, followed bool) *pending {
	if e.abandoned.Load() {
		return &pending{operation: operation{e: e}, err: e.failure()}
	}
	p, behind := e.joined, e.joined != nil
	if e.joined = nil; !behind {
		p = e.idle()
	}
	o := &p.operation
	*o = operation{e: e, ctx: l.Ctx, seq: l.Seq, calls: l.Calls, name: "Batch"}
	if l.Stream != nil {
		o.stream = l.Stream.(*cuda.Stream) // AdmitStream has checked it
	}
	if len(l.Calls) == 1 {
		o.name = l.Calls[0].Op()
	}
	o.latest = e.limit()
	var err error
	if f := e.failure(); f != nil {
		err = f
	} else {
		err = o.agree(next)
	}
	if err == nil && !o.ahead {
		err = o.onHost()
	}
	join := err == nil && l.Join && e.agreed > 0 // the next one follows for sure
	gives := err == nil && (o.stream != nil || o.onDevice)
	if gives {
		if err = p.give(join && followed); err != nil {
			err = o.fail(err) // at once, so that the others hear of it
		}
	}
	if gives && err == nil && join {
		e.joined = p
		return nil
	}
	if (o.enqueued || behind) && !p.mark {
		if wrong := p.record(); err == nil && wrong != nil {
			err = o.fail(wrong)
		}
	}
	p.err = err
	return p
}

// give gives the device its part, or does so with that of the next one.
func (p *pending) give(hold bool) error {
	o := &p.operation
	if o.e.stage == nil {
		return o.launch(hold)
	}
	// Behind all that is in the stream, also if it went wrong.
	err := first(o.throughHost(), p.record())
	if err == nil {
		err = o.await(p.event, nil) // the next one needs the slots
	}
	return err
}

// record puts an event behind the operation and behind the operations that were joined with
// it. The caller's stream, if there is one, waits for that event.
func (p *pending) record() (err error) {
	e := p.e
	p.mark = true
	if p.event == nil {
		if p.event, err = e.dev.NewEvent(); err != nil {
			return err
		}
	}
	e.guard.begin(&p.operation)
	err = first(e.flush(), p.event.Record(e.stream), p.holdStream(p.event))
	return first(err, e.guard.end())
}

// Agreed is how many operations are the next on all ranks, as far as that is known.
func (e *Engine) Agreed() int {
	if e.abandoned.Load() {
		return 0
	}
	return e.agreed
}

// Over reports whether the operation is over.
func (p *pending) Over(look bool) bool {
	p.e.inUse.RLock()
	defer p.e.inUse.RUnlock()
	return p.ended(look)
}

// ended is Over. e.inUse is read-locked.
func (p *pending) ended(look bool) bool {
	if p.over || p.err != nil || !p.mark {
		return true
	}
	if !p.asked {
		p.asked, p.latest = true, p.e.limit() // those before it had their own time
	}
	p.e.lookout.begin(&p.operation)
	over, err := p.reached(p.event, p.e.comm, look)
	if err = first(err, p.e.lookout.end()); err != nil {
		p.err = p.fail(err)
	}
	p.over = over || err != nil
	return p.over
}

// Settle waits until the operation is over.
func (p *pending) Settle() error {
	p.e.inUse.RLock()
	defer p.e.inUse.RUnlock()
	return p.settle()
}

// settle is Settle. e.inUse is read-locked.
func (p *pending) settle() error {
	e := p.e
	pace := wait.Poller{SpinAllowed: e.keen}
	for look := false; !p.ended(look); {
		look = pace.Pause()
	}
	err := p.err
	if err == nil {
		if f := e.failure(); f != nil {
			// Who failed may have changed the memory that others still read.
			err = f
		}
	}
	if err != nil && p.mark {
		e.quiet(p.event)
	}
	e.rest(p)
	return err
}

// idle returns something to remember an operation in.
func (e *Engine) idle() *pending {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.pendings); n > 0 {
		p := e.pendings[n-1]
		e.pendings = e.pendings[:n-1]
		return p
	}
	return new(pending)
}

// rest keeps it for another operation.
func (e *Engine) rest(p *pending) {
	*p = pending{event: p.event}
	e.mu.Lock()
	freed := e.freed
	if !freed {
		e.pendings = append(e.pendings, p)
	}
	e.mu.Unlock()
	if freed && p.event != nil {
		_ = p.event.Close() // its goroutine came back from the driver after Close
	}
}
