package gpu

import (
	"context"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
)

// A pending operation is one that the device has, and maybe not done, or that has
// failed already.
type pending struct {
	operation
	own      *cuda.Event // for the operation, if it is not alone; reused
	launched bool        // the device may have got something
	err      error
}

// Launch begins an operation in which the device has a part: all ranks agree that
// they do the same, and the device is given its part. It does not wait for those
// before it to be done.
func (e *Engine) Launch(ctx context.Context, seq uint64, calls []engine.Call, t *engine.Ticket) engine.Pending {
	return e.launch(ctx, seq, calls, t, false)
}

// launch is Launch; alone says that no other operation is begun before this one is
// over.
func (e *Engine) launch(ctx context.Context, seq uint64, calls []engine.Call, t *engine.Ticket, alone bool) *pending {
	p := e.idle()
	o := &p.operation
	*o = operation{e: e, ctx: ctx, seq: seq, calls: calls, ticket: t, name: "Batch"}
	if len(calls) == 1 {
		o.name = calls[0].Op()
	}
	o.latest = e.limit()
	err := o.agree()
	if err == nil {
		err = o.onHost()
	}
	if err == nil && (t != nil || o.onDevice) {
		o.done = e.stream
		if !alone {
			err = p.takeEvent()
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

// takeEvent gives the operation an event, because others follow it in the stream
// before it is done.
func (p *pending) takeEvent() (err error) {
	if p.own == nil {
		p.own, err = p.e.dev.NewEvent()
	}
	p.event, p.done = p.own, p.own
	return err
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
	*p = pending{own: p.own}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pendings = append(e.pendings, p)
}
