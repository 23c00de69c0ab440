package gpu

import (
	"bytes"
	"context"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// comparison is the name of the calls that compare operations. It distinguishes them from the
// user's operations.
const comparison = "operation on a device"

// An operation is one operation on one rank.
type operation struct {
	e        *Engine
	ctx      context.Context
	seq      uint64
	calls    []engine.Call
	name     string
	stream   *cuda.Stream    // the caller's stream that the operation is ordered with; nil: none
	deadline time.Time       // zero: none
	message  *engine.Message // the message that the operation waits for, for errors; nil: the device
	queued   bool            // the operation waits for its turn; for errors
	onDevice bool
	uneven   bool
	ahead    bool // compared together with an earlier operation
	enqueued bool // the engine's stream may hold a part of the operation
}

// agree waits for all ranks and compares their operations, unless an earlier comparison covered
// this one. If there is no communicator yet, agree also distributes the id of one. next are the
// signatures of the operations that follow on this rank.
func (o *operation) agree(next []uint64) error {
	e := o.e
	if e.agreed > 0 {
		e.agreed--
		o.onDevice = true // entirely: otherwise it has no signature that is compared ahead
		if f := e.failure(); f != nil {
			return f
		}
		if err := o.ctx.Err(); err != nil {
			o.queued = true
			return o.fail(err)
		}
		o.ahead = true
		return nil
	}
	for i := range o.calls {
		if c := &o.calls[i]; c.OnDevice() {
			o.onDevice = true
			o.uneven = o.uneven || c.Uneven
		}
	}
	e.ownDigest = digestOf(signature(o.calls), next)
	e.calls = append(e.calls[:0], engine.Call{
		Verb: engine.AllGather, Method: o.name, Name: comparison,
		Src: memOf(e.ownDigest[:], kernel.Uint64), Dst: memOf(e.digests, kernel.Uint64),
	})
	if e.comm == nil && e.stage == nil {
		if e.rank == 0 {
			if f := e.failure(); f != nil {
				return f // NCCL keeps a thread for an id that is never used
			}
			id, err := e.lib.NewID()
			if err != nil {
				return o.fail(err)
			}
			e.id = id
		}
		m := memOf(e.id[:], kernel.Uint8)
		e.calls = append(e.calls, engine.Call{Verb: engine.Broadcast, Method: o.name, Name: comparison, Src: m, Dst: m})
	}
	if err := e.onCPU(o.ctx, o.seq, e.calls); err != nil {
		return err
	}
	same := e.commonPrefix()
	if same == 0 {
		return o.disagree()
	}
	e.agreed = same - 1
	if o.uneven {
		return o.compareCounts()
	}
	return nil
}

// disagree fails the group with the first difference between the ranks' operations, and returns the group's
// first failure. All ranks call it, exchange their calls through the CPU engine, and find the same
// difference. An error of that exchange is returned instead.
func (o *operation) disagree() error {
	e := o.e
	var mine []byte
	for i := range o.calls {
		c := o.calls[i].Info()
		mine = engine.AppendCall(mine, &c)
	}
	lengths := make([]int64, e.size)
	err := e.onCPU(o.ctx, o.seq, []engine.Call{{
		Verb: engine.AllGather, Method: o.name,
		Src: memOf([]int64{int64(len(mine))}, kernel.Int64), Dst: memOf(lengths, kernel.Int64),
	}})
	if err != nil {
		return err
	}
	lists := make([][]byte, e.size)
	parts := make([]engine.Mem, e.size)
	for r, n := range lengths {
		lists[r] = make([]byte, n)
		parts[r] = memOf(lists[r], kernel.Uint8)
	}
	err = e.onCPU(o.ctx, o.seq, []engine.Call{{
		Verb: engine.AllGather, Uneven: true, Method: o.name, Src: memOf(mine, kernel.Uint8), DstParts: parts,
	}})
	if err != nil {
		return err
	}
	odd := 0
	for r := range lists {
		if !bytes.Equal(lists[r], lists[0]) {
			odd = r
			break
		}
	}
	f := &engine.Failure{Kind: engine.ErrMismatch, Rank: odd, Facts: engine.Facts{Event: engine.CallsDiffer}}
	if a, b, differ := difference(engine.ReadCalls(lists[0]), engine.ReadCalls(lists[odd])); differ {
		f.Sides = []engine.Side{{Rank: 0, Call: a}, {Rank: odd, Call: b}}
	}
	e.Fail(f)
	return e.first(f)
}

// difference returns the first call in which two ranks differ. Batches of different lengths differ
// as a whole. It reports false if the lists are equal: then only a hash differs.
func difference(as, bs []engine.CallInfo) (a, b engine.CallInfo, differ bool) {
	if len(as) != len(bs) {
		return together(as), together(bs), true
	}
	for i := range as {
		if as[i] != bs[i] {
			return as[i], bs[i], true
		}
	}
	return a, b, false
}

// together returns the only call, or a Batch that stands for several.
func together(calls []engine.CallInfo) engine.CallInfo {
	if len(calls) == 1 {
		return calls[0]
	}
	return engine.CallInfo{Fingerprint: engine.Fingerprint{Verb: engine.Group, Count: int64(len(calls))}}
}

// compareCounts checks that the element counts of uneven calls on the device agree in pairs: what
// one rank sends another is what the other expects. It returns when all ranks have checked theirs.
func (o *operation) compareCounts() error {
	e := o.e
	for i := range o.calls {
		c := &o.calls[i]
		if !c.Uneven || !c.OnDevice() {
			continue
		}
		out, in := e.counts[0][:0], e.counts[1][:0]
		for r := range e.size {
			out, in = append(out, int64(o.sends(c, r))), append(in, 0)
		}
		e.counts = [2][]int64{out, in}
		e.calls = append(e.calls[:0], engine.Call{
			Verb: engine.AllToAll, Method: o.name, Name: comparison,
			Src: memOf(out, kernel.Int64), Dst: memOf(in, kernel.Int64),
		})
		if err := e.onCPU(o.ctx, o.seq, e.calls); err != nil {
			return err
		}
		for r, n := range in {
			if want := o.expects(c, r); int64(want) != n {
				f := &engine.Failure{
					Kind: engine.ErrMismatch, Op: o.name, Seq: o.seq, Rank: e.rank,
					Facts: engine.Facts{
						Event: engine.CountsDiffer, Sides: []engine.Side{{Rank: e.rank, N: int64(want)}, {Rank: r, N: n}},
					},
				}
				e.Fail(f)
				return e.first(f)
			}
		}
	}
	e.calls = append(e.calls[:0], engine.Call{Verb: engine.Barrier, Method: o.name, Name: comparison})
	return e.onCPU(o.ctx, o.seq, e.calls)
}

// sends returns how many elements this rank sends to another.
func (o *operation) sends(c *engine.Call, to int) int {
	v := c.Verb.Info()
	switch {
	case !v.Source.Ranks.Has(o.e.rank, c.Root) || !v.Dest.Ranks.Has(to, c.Root):
		return 0
	case v.Source.Divided:
		return c.SrcParts[to].N
	}
	return c.Src.N
}

// expects returns how many elements this rank expects from another.
func (o *operation) expects(c *engine.Call, from int) int {
	v := c.Verb.Info()
	switch {
	case !v.Source.Ranks.Has(from, c.Root) || !v.Dest.Ranks.Has(o.e.rank, c.Root):
		return 0
	case v.Dest.Divided:
		return c.DstParts[from].N
	}
	return c.Dst.N
}

// onCPU carries out calls on the CPU engine, unless Close has closed it. A goroutine may return
// from the driver after Close.
func (e *Engine) onCPU(ctx context.Context, seq uint64, calls []engine.Call) error {
	e.cpuUse.RLock()
	defer e.cpuUse.RUnlock()
	if e.cpuClosed {
		return e.closedError()
	}
	return e.Engine.Run(ctx, seq, calls)
}

// closedError returns the error of an operation after Close.
func (e *Engine) closedError() error {
	if f := e.failure(); f != nil {
		return f
	}
	return errClosed
}

// onHost carries out the host calls of a Batch that has calls on host memory and on device memory. It is
// called by the goroutine that launches, which owns e.calls, and waits until they are complete.
func (o *operation) onHost() error {
	e := o.e
	e.calls = e.calls[:0]
	for i := range o.calls {
		if c := &o.calls[i]; !c.OnDevice() && c.Verb != engine.Barrier {
			e.calls = append(e.calls, *c)
		}
	}
	if len(e.calls) == 0 {
		return nil
	}
	err := e.onCPU(o.ctx, o.seq, e.calls)
	for i := range e.calls {
		e.calls[i].Forget()
	}
	return err
}

// memOf describes a slice to the CPU engine.
func memOf[T uint64 | int64 | byte](s []T, t kernel.DType) engine.Mem {
	return engine.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(s)), N: len(s), Type: t}
}
