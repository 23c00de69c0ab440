package hier

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tutti-go/tutti/internal/engine"
)

// Engine is one rank's part of a group that spans several hosts.
type Engine struct {
	layout
	opt      Options
	cause    engine.Cause
	stopOnce sync.Once
	done     chan struct{}

	// Run owns the fields below.

	localGroup  subgroup   // the ranks of this host
	leaderGroup subgroup   // the leaders; its Engine is nil on other ranks
	seq         uint64     // number of the running operation
	op          string     // name of the running operation
	begun       bool       // the operation has completed a step
	leadersRan  bool       // the running call has completed a step of leaderGroup
	segments    [2][]piece // the segment at work and the next one; reused
	scratch     [numScratch]engine.Scratch
	hostShares  []engine.Mem // by host
	rootShares  []engine.Mem // by index on this host
}

// A subgroup is an inner group with the steps that it runs next.
type subgroup struct {
	engine.Engine
	ranks []int // by rank in the subgroup: the rank in this group
	steps []engine.Call
}

// add appends a step if this rank belongs to the subgroup.
func (p *subgroup) add(step engine.Call) {
	if p.Engine != nil {
		p.steps = append(p.steps, step)
	}
}

var _ engine.Engine = (*Engine)(nil)

// New returns this rank's engine. Close closes the inner engines.
func New(opt Options) *Engine {
	if opt.Segment <= 0 {
		opt.Segment = defaultSegment
	}
	e := &Engine{
		layout: newLayout(opt.Rank, opt.Hosts), opt: opt,
		done: make(chan struct{}),
	}
	e.localGroup = subgroup{Engine: opt.Local, ranks: e.local}
	e.leaderGroup = subgroup{Engine: opt.Leaders, ranks: e.leaders}
	e.hostShares = make([]engine.Mem, len(e.leaders))
	e.rootShares = make([]engine.Mem, len(e.local))
	return e
}

// Rank returns this rank's number in the group.
func (e *Engine) Rank() int { return e.rank }

// Size returns the number of ranks in the group.
func (e *Engine) Size() int { return len(e.hosts) }

// SameHost returns, for each rank, the lowest rank on its host.
func (e *Engine) SameHost() []int { return slices.Clone(e.hosts) }

// Describe returns how the engine moves data.
func (e *Engine) Describe() engine.Description {
	return engine.Description{
		Engine: "hier", Transport: "shared memory and " + e.opt.All.Describe().Transport, Device: engine.NoDevice,
	}
}

// Sub calls Options.Sub.
func (e *Engine) Sub(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
	return e.opt.Sub(ctx, seq, members)
}

// Alloc calls Options.Alloc.
func (e *Engine) Alloc(ctx context.Context, seq uint64, bytes int) (*engine.Region, error) {
	return e.opt.Alloc(ctx, seq, bytes)
}

// Close closes the inner engines.
func (e *Engine) Close() error {
	var errs []error
	for _, inner := range e.inner() {
		errs = append(errs, inner.Close())
	}
	return errors.Join(errs...)
}

// inner returns the inner engines.
func (e *Engine) inner() []engine.Engine {
	list := []engine.Engine{e.opt.Local, e.opt.All}
	if e.opt.Leaders != nil {
		list = append(list, e.opt.Leaders)
	}
	return list
}

// Post announces a message.
func (e *Engine) Post(msgs ...*engine.Message) { e.opt.All.Post(msgs...) }

// Finish waits until a message has been delivered.
func (e *Engine) Finish(ctx context.Context, m *engine.Message) error {
	err := e.opt.All.Finish(ctx, m)
	if err == nil || errors.As(err, new(*engine.Unreceived)) {
		return err
	}
	return e.fail(failureOf(err))
}

// Run carries out the calls in order. It joins consecutive AllReduces. The first error fails the group, skips
// the other calls, and is returned as the group's first failure. One goroutine at a time calls it.
func (e *Engine) Run(ctx context.Context, seq uint64, calls []engine.Call) error {
	e.seq, e.begun = seq, false
	var failed *engine.Failure
	for len(calls) > 0 && failed == nil {
		n := e.fusable(calls)
		e.op, e.leadersRan = calls[0].Op(), false
		failed = e.dispatch(ctx, calls[:n])
		calls = calls[n:]
	}
	e.releaseBuffers()
	if failed != nil {
		return e.fail(failed)
	}
	return nil
}

// dispatch carries out one call, or several AllReduces, hierarchically or by the engine of all ranks. It
// returns the failure of the inner group, as this group's ranks see it.
func (e *Engine) dispatch(ctx context.Context, calls []engine.Call) *engine.Failure {
	c := &calls[0]
	if !e.hierarchical(c.Fingerprint()) {
		return e.runFlat(ctx, calls)
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
	case engine.Scan, engine.ExScan:
		return e.scan(ctx, calls)
	default:
		return e.barrier(ctx, c)
	}
}

// hierarchical reports whether a call uses the groups of hosts and of leaders. The result
// depends only on the fingerprint, the placement and options that all ranks share, so that all ranks
// choose the same way.
func (e *Engine) hierarchical(s engine.Fingerprint) bool {
	switch {
	case s.Uneven, s.Verb == engine.Gather, s.Verb == engine.Scatter, s.Verb == engine.AllToAll:
		return false
	case s.Verb.Info().Prefix != engine.NoPrefix && !e.inOrder:
		return false // a host's sum is not that of neighboring ranks
	case s.Verb.Reduces() && e.opt.Reproducible:
		return !s.ReduceOp.OrderMatters(s.Type)
	}
	return true
}

// fusable returns the number of calls at the start of the list that dispatch can carry out as
// one. It is at least 1.
func (e *Engine) fusable(calls []engine.Call) int {
	n := 0
	for n < len(calls) && calls[n].Verb == engine.AllReduce && e.hierarchical(calls[n].Fingerprint()) {
		n++
	}
	return max(n, 1)
}

// runSteps runs the pending steps of an inner group as one operation.
func (e *Engine) runSteps(ctx context.Context, p *subgroup) *engine.Failure {
	err := p.Run(ctx, e.seq, p.steps)
	clear(p.steps)
	p.steps = p.steps[:0]
	if err != nil {
		return e.translate(failureOf(err), p)
	}
	e.begun = true
	e.leadersRan = e.leadersRan || p == &e.leaderGroup
	return nil
}
