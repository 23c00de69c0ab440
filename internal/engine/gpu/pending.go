package gpu

import (
	"context"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// A pending operation is one that the device has, and maybe not done, or that has
// failed already.
type pending struct {
	operation
	launched bool // done is behind it
	err      error
}

// Launch begins an operation in which the device has a part: all ranks agree that
// they do the same, and the device is given its part. It does not wait for those
// before it to be done.
func (e *Engine) Launch(ctx context.Context, seq uint64, calls []engine.Call, t *engine.Ticket, next []uint64) engine.Pending {
	p := e.idle()
	o := &p.operation
	*o = operation{e: e, ctx: ctx, seq: seq, calls: calls, ticket: t, name: "Batch", done: o.done}
	if len(calls) == 1 {
		o.name = calls[0].Op()
	}
	o.latest = e.limit()
	err := o.agree(next)
	if err == nil {
		err = o.onHost()
	}
	if err == nil && (t != nil || o.onDevice) {
		if o.done == nil {
			o.done, err = e.dev.NewEvent()
		}
		if err == nil {
			p.launched = true
			err = o.give()
		}
		if err != nil {
			err = o.fail(err) // at once, so that the others hear of it
		}
	}
	p.err = err
	return p
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
func (p *pending) Settle(late time.Duration) error {
	e, o, err := p.e, &p.operation, p.err
	if err == nil && p.launched {
		o.latest = e.limit() // those before it had their own time
		o.nap = late
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
