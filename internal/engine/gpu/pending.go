package gpu

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
)

// A pending operation is one that the device has, and maybe not done, or that has
// failed already.
type pending struct {
	operation
	launched bool // done is behind it
	err      error
}

// Launch begins an operation in which the device has a part: the device is given
// its part, and all ranks agree that they do the same. It does not wait for those
// before it to be done.
//
// The device comes first where it can: the ranks agree while it works. If they do
// not, the communicators are aborted, as with any failure, and what is in the
// memory is undefined. It comes last where more is to be agreed upon: on a
// communicator, on the sizes of an uneven operation, or on what the host does.
func (e *Engine) Launch(ctx context.Context, seq uint64, calls []engine.Call, t *engine.Ticket) engine.Pending {
	p := e.idle()
	o := &p.operation
	*o = operation{e: e, ctx: ctx, seq: seq, calls: calls, ticket: t, name: "Batch", done: o.done}
	if len(calls) == 1 {
		o.name = calls[0].Op()
	}
	o.latest = e.limit()
	o.describe()
	early := e.comm != nil && o.onDevice && !o.elsewhere && !o.uneven
	if early {
		p.begin()
	}
	if p.err == nil {
		p.err = o.agree()
	}
	if p.err == nil {
		p.err = o.onHost()
	}
	if p.err == nil && !early && (t != nil || o.onDevice) {
		p.begin()
	}
	return p
}

// begin gives the device its part, and notes what has become of that.
func (p *pending) begin() {
	o := &p.operation
	if o.done == nil {
		o.done, p.err = o.e.dev.NewEvent()
	}
	if p.err == nil {
		p.launched = true
		p.err = o.give()
	}
	if p.err != nil {
		p.err = o.fail(p.err) // at once, so that the others hear of it
	}
}

// give gives the device its part.
func (o *operation) give() error {
	if o.e.stage == nil {
		return o.launch()
	}
	err := o.throughHost()
	if err == nil {
		err = o.await(o.done, nil) // the next one needs the slots
	}
	return err
}

// Settle waits until the operation is over.
func (p *pending) Settle() error {
	e, o, err := p.e, &p.operation, p.err
	if err == nil && p.launched {
		o.latest = e.limit() // those before it had their own time
		if err = o.await(o.done, e.comm); err != nil {
			err = o.fail(err)
		}
	}
	if err == nil {
		if f := e.failure(); f != nil {
			// Who failed may have changed the memory that others still read.
			err = f
		}
	}
	if err != nil && p.launched {
		e.quiet(o.done)
	}
	if t := o.ticket; t != nil {
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
	*p = pending{operation: operation{done: p.done}}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pendings = append(e.pendings, p)
}
