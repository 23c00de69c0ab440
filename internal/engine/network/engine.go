package network

import (
	"context"
	"errors"
	"slices"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/p2p"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// Engine is one rank's part in a group whose ranks communicate through a Mesh.
type Engine struct {
	opt        Options
	mesh       transport.Mesh
	rank, size int
	cause      engine.Cause // first failure of the group
	calls      callLog      // this rank's calls and those of other ranks

	messages *p2p.Messages

	// The fields from here to scratch belong to the goroutine that is in Run.

	w        *wait.Waiter
	seq      uint64          // sequence number of the running operation
	op       string          // name of the running call, for errors
	step     uint64          // number of the current call, from 1
	elem     int             // size of an element of the current call, in bytes; at least one
	head     transport.Head  // head of the frames of the current call
	out, in  transport.Frame // for move; kept here to avoid an allocation per frame
	to, from int             // destination and source of the last exchange, or noRank
	lastStep []uint64        // by rank: last step in which a frame from that rank arrived
	// unconfirmed is true when calls of this rank have waited for no other rank, and no later call
	// has waited for all of them.
	unconfirmed bool
	scratch     [numScratch]engine.Scratch
}

var _ engine.Engine = (*Engine)(nil)

// New returns this rank's engine for the group of mesh. The engine closes the mesh.
func New(mesh transport.Mesh, opt Options) *Engine {
	n := mesh.Size()
	opt.fill(n)
	e := &Engine{
		opt: opt, mesh: mesh, rank: mesh.Rank(), size: n,
		calls:    callLog{heard: make([]peerCall, n)},
		w:        wait.NewWaiter(opt.ParkingLot),
		lastStep: make([]uint64, n),
	}
	e.messages = p2p.New(p2p.Options{
		Rank: e.rank, Size: n, Lane: mesh, ParkingLot: opt.ParkingLot, Timeout: opt.Timeout, Fail: e.failMessage,
	})
	return e
}

// Post announces a message. See engine.Engine.
func (e *Engine) Post(msgs ...*engine.Message) { e.messages.Post(msgs...) }

// Finish waits until a message has been delivered. See engine.Engine.
func (e *Engine) Finish(ctx context.Context, m *engine.Message) error {
	return e.messages.Finish(ctx, m)
}

// failMessage ends the group because of an error of a message.
func (e *Engine) failMessage(ctx context.Context, err error, m *engine.Message) *engine.Failure {
	f := e.explain(ctx, err, m.Op(), m.Seq, m.Awaited)
	known := errors.As(err, new(*engine.Failure)) || errors.Is(err, wait.ErrStopped) // then others read f
	if lost := (*transport.LostError)(nil); !known && errors.As(f.Err, &lost) {
		f.Lost = m.Missed(lost.Peer, e.rank, e.size)
	}
	return e.fail(f)
}

// Rank returns this rank's number in the group.
func (e *Engine) Rank() int { return e.rank }

// Size returns the number of ranks in the group.
func (e *Engine) Size() int { return e.size }

// SameHost returns which ranks share a host. See engine.Engine.
func (e *Engine) SameHost() []int { return slices.Clone(e.opt.Hosts) }

// Describe returns how the engine moves data.
func (e *Engine) Describe() engine.Description {
	return engine.Description{Engine: "network", Transport: e.mesh.Name(), Device: engine.NoDevice}
}

// Close announces to the other ranks that this rank leaves, and why.
func (e *Engine) Close() error {
	f := e.cause.Load()
	if f == nil && e.opt.Excuse != nil {
		f = e.opt.Excuse()
	}
	why := engine.NewExitReason(f)
	var head transport.Head
	copy(head[:], why[:])
	return e.mesh.Leave(&head)
}

// Alloc returns memory of this process. Registered memory has no advantage for a
// network transport.
func (e *Engine) Alloc(_ context.Context, _ uint64, bytes int) (*engine.Region, error) {
	return engine.NewRegion(bytes), nil
}

// Sub calls Options.Sub, which makes a group of some of the ranks.
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

// Run carries out calls in order, and consecutive small AllReduces as one step.
// When a call fails, is cancelled or times out, Run fails the group and returns the
// first cause.
func (e *Engine) Run(ctx context.Context, seq uint64, calls []engine.Call) error {
	e.seq, e.op = seq, calls[0].Op()
	e.to, e.from = noRank, noRank
	e.w.Begin(ctx, e.opt.Timeout)
	err := e.run(ctx, calls)
	if err != nil {
		err = e.fail(e.explain(ctx, err, e.op, e.seq, e.missing))
	}
	e.w.End()
	e.releaseBuffers()
	return err
}

// run carries out the calls, small AllReduces together as one step, and returns the first error. It does
// nothing if the group has failed or the context has ended.
func (e *Engine) run(ctx context.Context, calls []engine.Call) error {
	if e.opt.ParkingLot.Stopped() {
		return wait.ErrStopped
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for len(calls) > 0 {
		n := e.callsPerStep(calls)
		e.noteConfirmed(&calls[0])
		var err error
		if n > 1 {
			err = e.runFused(calls[:n])
		} else {
			err = e.runCall(&calls[0])
		}
		if err != nil {
			return err
		}
		calls = calls[n:]
	}
	return nil
}

// beginStep begins the step of one call, or of several fused calls.
func (e *Engine) beginStep(m namedFingerprint, alg Algorithm, op string) {
	e.op = op
	e.head = e.calls.beginStep(record{m, op, e.seq}, alg)
	e.step++
	e.elem = max(m.sig.Type.Size(), 1)
	e.to, e.from = noRank, noRank
}

// runCall runs one call as one step, with the algorithm that all ranks choose for it.
func (e *Engine) runCall(c *engine.Call) error {
	m := newNamedFingerprint(c)
	alg := e.opt.choose(m.sig, e.size)
	e.beginStep(m, alg, c.Op())
	switch c.Verb {
	case engine.AllReduce:
		return e.allReduce(c, alg)
	case engine.Reduce:
		return e.reduce(c, alg)
	case engine.Broadcast:
		return e.broadcast(c, alg)
	case engine.AllGather, engine.Split:
		return e.allGather(c, alg)
	case engine.ReduceScatter:
		return e.reduceScatter(c, alg)
	case engine.Gather:
		return e.gather(c, alg)
	case engine.Scatter:
		return e.scatter(c, alg)
	case engine.AllToAll:
		return e.allToAll(c, alg)
	case engine.Scan, engine.ExScan:
		return e.scan(c, alg)
	default:
		// Barrier, Dup and Alloc carry no data.
		return e.disseminate()
	}
}

// releaseBuffers drops references to the caller's memory, and scratch memory that
// is too large to keep.
func (e *Engine) releaseBuffers() {
	e.out.Body, e.in.Body = nil, nil
	for i := range e.scratch {
		e.scratch[i].Trim()
	}
}
