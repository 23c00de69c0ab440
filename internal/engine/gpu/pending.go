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
	for i := range list {
		list[i].Pending = e.begin(&list[i], next, i+1 < len(list))
	}
}

// begin begins one, which others may follow at once.
func (e *Engine) begin(l *engine.Launch, next []uint64, followed bool) engine.Pending {
	p, behind := e.joined, e.joined != nil
	if e.joined = nil; !behind {
		p = e.idle()
	}
	o := &p.operation
	*o = operation{e: e, ctx: l.Ctx, seq: l.Seq, calls: l.Calls, ticket: l.Ticket, name: "Batch"}
	if len(l.Calls) == 1 {
		o.name = l.Calls[0].Op()
	}
	o.latest = e.limit()
	err := o.agree(next)
	if err == nil && !o.ahead {
		err = o.onHost()
	}
	join := err == nil && l.Join && e.agreed > 0 // the next one follows for sure
	gives := err == nil && (l.Ticket != nil || o.onDevice)
	if gives {
		if err = p.give(join && followed); err != nil {
			err = o.fail(err) // at once, so that the others hear of it
		}
	}
	if gives && err == nil && join {
		e.joined = p
		return nil
	}
	if (gives || behind) && !p.mark {
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

// record puts an event behind the operation, and behind those that were joined with it.
func (p *pending) record() (err error) {
	e := p.e
	p.mark = true
	if p.event == nil {
		if p.event, err = e.dev.NewEvent(); err != nil {
			return err
		}
	}
	e.guard.begin(&p.operation)
	err = first(e.flush(), p.event.Record(e.stream))
	return first(err, e.guard.end())
}

// Agreed is how many operations are the next on all ranks, as far as that is known.
func (e *Engine) Agreed() int { return e.agreed }

// Over reports whether the operation is over.
func (p *pending) Over(look bool) bool {
	if p.over || p.err != nil || !p.mark {
		return true
	}
	if !p.asked {
		p.asked, p.latest = true, p.e.limit() // those before it had their own time
	}
	over, err := p.reached(p.event, p.e.comm, look)
	if err != nil {
		p.err = p.fail(err)
	}
	p.over = over || err != nil
	return p.over
}

// Settle waits until the operation is over.
func (p *pending) Settle() error {
	e := p.e
	pace := wait.Pace{Keen: e.keen}
	for look := false; !p.Over(look); {
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
	if t := p.ticket; t != nil {
		if err != nil {
			e.gate.release() // those before it have written their numbers
		}
		e.gate.back(t)
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
	defer e.mu.Unlock()
	e.pendings = append(e.pendings, p)
}
