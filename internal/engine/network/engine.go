package network

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// Engine is one rank's side of a group whose ranks reach each other through a
// Mesh.
type Engine struct {
	opt        Options
	mesh       transport.Mesh
	rank, size int
	cause      engine.Cause
	log        log

	mu      sync.Mutex
	letters map[*engine.Message]*letter // posted
	spare   []*letter                   // for reuse

	// What follows belongs to the goroutine that is in Run.

	w        *wait.Waiter
	seq      uint64 // the running operation's number
	op       string // and its name
	step     uint64 // the number of the call
	elem     int    // the size of its elements, at least one
	head     transport.Head
	out, in  transport.Frame
	to, from int      // whom the last frame was for, and from whom
	met      []uint64 // the last step in which a frame came from a rank
	scratch  [numScratch]engine.Scratch
}

var _ engine.Engine = (*Engine)(nil)

// New returns this rank's side of the mesh's group. The engine closes the mesh.
func New(mesh transport.Mesh, opt Options) *Engine {
	n := mesh.Size()
	opt.fill(n)
	return &Engine{
		opt: opt, mesh: mesh, rank: mesh.Rank(), size: n,
		log:     log{heard: make([]seen, n)},
		letters: make(map[*engine.Message]*letter),
		w:       wait.NewWaiter(opt.ParkingLot),
		met:     make([]uint64, n),
	}
}

// Rank is this rank's number in the group.
func (e *Engine) Rank() int { return e.rank }

// Size is the number of ranks in the group.
func (e *Engine) Size() int { return e.size }

// SameHost says which ranks share a host.
func (e *Engine) SameHost() []int { return slices.Clone(e.opt.Hosts) }

// Close says goodbye to the other ranks, and why.
func (e *Engine) Close() error {
	f := e.cause.Load()
	if f == nil && e.opt.Excuse != nil {
		f = e.opt.Excuse()
	}
	why := engine.NewFarewell(f)
	var head transport.Head
	copy(head[:], why[:])
	return e.mesh.Leave(&head)
}

// Alloc returns memory of this process: nothing is faster for the network.
func (e *Engine) Alloc(_ context.Context, _ uint64, bytes int) (*engine.Region, error) {
	return engine.NewRegion(bytes), nil
}

// Sub asks the owner for a group of some of the ranks.
func (e *Engine) Sub(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
	f := &engine.Failure{Kind: engine.ErrUnsupported, Op: "Sub", Seq: seq, Rank: e.rank}
	if e.opt.Sub == nil {
		f.Facts = engine.Facts{Text: "this engine was made without a way to make groups"}
		return nil, f
	}
	sub, err := e.opt.Sub(ctx, seq, members)
	if err == nil || errors.As(err, new(*engine.Failure)) {
		return sub, err
	}
	f.Kind, f.Err = engine.ErrAborted, err
	f.Facts = engine.Facts{Event: engine.FormingFailed, Ranks: members, Text: err.Error()}
	return nil, f
}

// Run carries out calls one after the other, small neighbours together.
func (e *Engine) Run(ctx context.Context, seq uint64, calls []engine.Call) error {
	e.seq, e.op = seq, calls[0].Op()
	e.to, e.from = nobody, nobody
	e.w.Begin(ctx, e.opt.Timeout)
	err := e.run(ctx, calls)
	if err != nil {
		err = e.fail(e.explain(ctx, err, e.op, e.seq, e.whereabouts))
	}
	e.w.End()
	e.forget()
	return err
}

func (e *Engine) run(ctx context.Context, calls []engine.Call) error {
	if e.opt.ParkingLot.Stopped() {
		return wait.ErrStopped
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for len(calls) > 0 {
		n := e.together(calls)
		var err error
		if n > 1 {
			err = e.carryOutTogether(calls[:n])
		} else {
			err = e.carryOut(&calls[0])
		}
		if err != nil {
			return err
		}
		calls = calls[n:]
	}
	return nil
}

// enter begins a step.
func (e *Engine) enter(m mark, way Algorithm, op string) {
	e.op = op
	e.head = e.log.enter(record{m, op, e.seq}, way)
	e.step++
	e.elem = max(m.sig.Type.Size(), 1)
	e.to, e.from = nobody, nobody
}

// carryOut is one step.
func (e *Engine) carryOut(c *engine.Call) error {
	m := newMark(c)
	way := e.opt.choose(m.sig, e.size)
	e.enter(m, way, c.Op())
	switch c.Verb {
	case engine.AllReduce:
		return e.allReduce(c, way)
	case engine.Reduce:
		return e.reduce(c, way)
	case engine.Broadcast:
		return e.broadcast(c, way)
	case engine.AllGather, engine.Split:
		return e.allGather(c, way)
	case engine.ReduceScatter:
		return e.reduceScatter(c, way)
	case engine.Gather:
		return e.gather(c, way)
	case engine.Scatter:
		return e.scatter(c, way)
	case engine.AllToAll:
		return e.allToAll(c, way)
	default:
		return e.disseminate()
	}
}

// forget lets go of the caller's memory, and of scratch that is too large to
// keep.
func (e *Engine) forget() {
	e.out.Body, e.in.Body = nil, nil
	for i := range e.scratch {
		e.scratch[i].Trim()
	}
}
