package hier

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tutti-go/tutti/internal/engine"
)

// Engine is one rank's side of a group that has several hosts.
type Engine struct {
	layout
	opt   Options
	cause engine.Cause
	stop  sync.Once
	done  chan struct{}

	// What follows belongs to the goroutine that is in Run.

	inside  part   // the ranks of this host
	across  part   // the leaders; only on them
	seq     uint64 // the running operation's number
	op      string // and its name
	begun   bool   // it has taken a step
	crossed bool   // the present call has gone to other hosts
	waves   [2][]piece
	scratch [numScratch]engine.Scratch
	shares  []engine.Mem // by host
	handed  []engine.Mem // by rank of this host
}

// A part is an inner group, and the steps that it takes next.
type part struct {
	engine.Engine
	ranks []int // by its own numbers
	steps []engine.Call
}

// add is a step more, if this rank belongs to the part.
func (p *part) add(step engine.Call) {
	if p.Engine != nil {
		p.steps = append(p.steps, step)
	}
}

var _ engine.Engine = (*Engine)(nil)

// New returns this rank's side. The engine closes the inner ones.
func New(opt Options) *Engine {
	if opt.Segment <= 0 {
		opt.Segment = defaultSegment
	}
	e := &Engine{
		layout: newLayout(opt.Rank, opt.Hosts), opt: opt,
		done: make(chan struct{}),
	}
	e.inside = part{Engine: opt.Local, ranks: e.local}
	e.across = part{Engine: opt.Leaders, ranks: e.leaders}
	e.shares = make([]engine.Mem, len(e.leaders))
	e.handed = make([]engine.Mem, len(e.local))
	return e
}

// Rank is this rank's number in the group.
func (e *Engine) Rank() int { return e.rank }

// Size is the number of ranks in the group.
func (e *Engine) Size() int { return len(e.hosts) }

// SameHost says which ranks share a host.
func (e *Engine) SameHost() []int { return slices.Clone(e.hosts) }

// Sub asks the owner for a group of some of the ranks.
func (e *Engine) Sub(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
	return e.opt.Sub(ctx, seq, members)
}

// Alloc asks the owner for memory that the ranks of this host can see.
func (e *Engine) Alloc(ctx context.Context, seq uint64, bytes int) (*engine.Region, error) {
	return e.opt.Alloc(ctx, seq, bytes)
}

// Close says goodbye to the other ranks.
func (e *Engine) Close() error {
	var errs []error
	for _, inner := range e.inner() {
		errs = append(errs, inner.Close())
	}
	return errors.Join(errs...)
}

// inner are the engines that this one is made of.
func (e *Engine) inner() []engine.Engine {
	list := []engine.Engine{e.opt.Local, e.opt.All}
	if e.opt.Leaders != nil {
		list = append(list, e.opt.Leaders)
	}
	return list
}

// Post announces a message.
func (e *Engine) Post(m *engine.Message) { e.opt.All.Post(m) }

// Finish waits until a message has been delivered.
func (e *Engine) Finish(ctx context.Context, m *engine.Message) error {
	if err := e.opt.All.Finish(ctx, m); err != nil {
		return e.fail(failureOf(err))
	}
	return nil
}

// Run carries out calls one after the other, neighbouring AllReduces together.
func (e *Engine) Run(ctx context.Context, seq uint64, calls []engine.Call) error {
	e.seq, e.begun = seq, false
	var failed *engine.Failure
	for len(calls) > 0 && failed == nil {
		n := e.together(calls)
		e.op, e.crossed = calls[0].Op(), false
		failed = e.carryOut(ctx, calls[:n])
		calls = calls[n:]
	}
	e.forget()
	if failed != nil {
		return e.fail(failed)
	}
	return nil
}

// carryOut is one call, or several AllReduces.
func (e *Engine) carryOut(ctx context.Context, calls []engine.Call) *engine.Failure {
	c := &calls[0]
	if !e.layered(c.Sig()) {
		return e.whole(ctx, calls)
	}
	switch c.Verb {
	case engine.AllReduce:
		return e.allReduce(ctx, calls)
	case engine.Reduce:
		return e.reduce(ctx, calls)
	case engine.Broadcast:
		return e.broadcast(ctx, calls)
	case engine.AllGather, engine.Split:
		return e.allGather(ctx, c)
	case engine.ReduceScatter:
		return e.reduceScatter(ctx, c)
	default:
		return e.barrier(ctx, c)
	}
}

// layered reports whether a call goes host by host. It follows from the
// fingerprint, so that all ranks come to the same.
func (e *Engine) layered(s engine.Sig) bool {
	switch {
	case s.Uneven, s.Verb == engine.Gather, s.Verb == engine.Scatter, s.Verb == engine.AllToAll:
		return false
	case s.Verb.Reduces() && e.opt.Reproducible:
		return !s.Red.OrderMatters(s.Type)
	}
	return true
}

// together returns how many of the first calls are carried out together.
func (e *Engine) together(calls []engine.Call) int {
	n := 0
	for n < len(calls) && calls[n].Verb == engine.AllReduce && e.layered(calls[n].Sig()) {
		n++
	}
	return max(n, 1)
}

// take lets an inner group take its next steps.
func (e *Engine) take(ctx context.Context, p *part) *engine.Failure {
	err := p.Run(ctx, e.seq, p.steps)
	clear(p.steps)
	p.steps = p.steps[:0]
	if err != nil {
		return e.translate(failureOf(err), p)
	}
	e.begun = true
	e.crossed = e.crossed || p == &e.across
	return nil
}
