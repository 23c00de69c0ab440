package gpu

import (
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/nccl"
)

var types = [kernel.NumDTypes + 1]nccl.DataType{
	kernel.Int8: nccl.Int8, kernel.Uint8: nccl.Uint8, kernel.Int32: nccl.Int32, kernel.Uint32: nccl.Uint32,
	kernel.Int64: nccl.Int64, kernel.Uint64: nccl.Uint64, kernel.Float16: nccl.Float16,
	kernel.BFloat16: nccl.BFloat16, kernel.Float32: nccl.Float32, kernel.Float64: nccl.Float64,
}

var ops = [engine.NumOps + 1]nccl.Op{
	engine.Sum: nccl.Sum, engine.Prod: nccl.Prod, engine.Min: nccl.Min, engine.Max: nccl.Max, engine.Avg: nccl.Avg,
}

// inNCCL returns an error if NCCL lacks the verb or the operator of a call.
func inNCCL(c *engine.Call) error {
	switch {
	case c.Verb.Info().Prefix != engine.NoPrefix:
		return lacks(c.Verb.String())
	case c.Verb.Reduces() && ops[c.ReduceOp] == (nccl.Op{}) && !ownFactor(c):
		return lacks("operator " + c.ReduceOp.String())
	}
	return nil
}

// typeInNCCL returns an error if t is an element type that NCCL lacks.
func typeInNCCL(t kernel.DType) error {
	if !t.Valid() || types[t] != 0 { // an invalid type belongs to memory that the call does not use
		return nil
	}
	return lacks("element type " + t.String())
}

func lacks(what string) error {
	return fmt.Errorf("%w: NCCL has no %s; copy the elements to host memory, or make the Comm with Config.HostStaging", engine.ErrUnsupported, what)
}

// A step is a call and the resources that prepare made for it.
type step struct {
	*engine.Call
	op      nccl.Op
	scratch *cuda.Slice[byte]
}

// launch enqueues the operation on the engine's stream. If hold is set, NCCL may hold it back until
// the next operation, which saves a call into C.
func (o *operation) launch(hold bool) error {
	e := o.e
	if err := o.connect(); err != nil {
		return err
	}
	o.enqueued = true
	plain := o.plain()
	e.guard.begin(o)
	var err error
	switch {
	case !plain:
		err = e.flush()
	case hold && !e.held:
		err = e.comm.Hold()
		e.held = err == nil
	}
	if err == nil {
		err = o.enqueue()
	}
	if !hold {
		err = first(err, e.flush())
	}
	return first(err, e.guard.end())
}

// plain reports whether the operation is a single call of NCCL and nothing else in the stream.
func (o *operation) plain() bool {
	if len(o.calls) != 1 || o.stream != nil {
		return false
	}
	c := &o.calls[0]
	return !c.Uneven && !ownFactor(c) && (c.Verb != engine.AllToAll || c.Src.Ptr != c.Dst.Ptr)
}

// ownFactor reports whether NCCL needs an operator made for this call's factor.
func ownFactor(c *engine.Call) bool {
	return c.Scales() && c.ReduceOp.Info().Scaling == engine.ByFactor
}

// flush enqueues the operations that are held back. Its error is that of the last of them, and of
// all that share its completion event.
func (e *Engine) flush() error {
	if !e.held {
		return nil
	}
	e.held = false
	return e.comm.Flush()
}

// enqueue passes all calls to NCCL. The goroutine that launches calls it and owns e.steps. After an error no
// further call is made, and the resources of all steps are freed.
func (o *operation) enqueue() (err error) {
	e := o.e
	if err := o.followStream(); err != nil {
		return err
	}
	e.steps = e.steps[:0]
	for i := range o.calls {
		e.steps = append(e.steps, step{Call: &o.calls[i]})
		if err == nil {
			err = o.prepare(&e.steps[i])
		}
	}
	if err == nil {
		if len(e.steps) == 1 && !e.steps[0].Uneven {
			err = o.start(&e.steps[0])
		} else {
			err = e.lib.Group(o.startAll)
		}
	}
	for i := range e.steps {
		if wrong := o.tidy(&e.steps[i]); err == nil {
			err = wrong
		}
	}
	clear(e.steps)
	return err
}

// startAll passes all calls to NCCL. It is called in a group of NCCL.
func (o *operation) startAll() error {
	for i := range o.e.steps {
		if err := o.start(&o.e.steps[i]); err != nil {
			return err
		}
	}
	return nil
}

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// prepare creates the operator and the scratch memory that a call needs; tidy frees them, also after an
// error. Scratch memory is for an AllToAll in place.
func (o *operation) prepare(s *step) (err error) {
	e := o.e
	if !s.OnDevice() {
		return nil
	}
	switch {
	case ownFactor(s.Call):
		t := s.Src.Type
		if s.Uneven {
			t = s.Dst.Type
		}
		s.op, err = e.comm.PreMulSum(types[t], s.Scale)
	case s.Verb.Reduces():
		s.op = ops[s.ReduceOp]
	case s.Verb == engine.AllToAll && !s.Uneven && s.Src.Ptr == s.Dst.Ptr && s.Src.N > 0:
		var src *cuda.Slice[byte]
		if src, err = cuda.Wrap[byte](e.dev, uintptr(s.Src.Ptr), s.Src.Bytes()); err != nil {
			return err
		}
		if s.scratch, err = cuda.AllocOn[byte](e.stream, nil, s.Src.Bytes()); err == nil {
			err = s.scratch.CopyOn(e.stream, src)
		}
	}
	return err
}

// tidy releases the resources of prepare, in stream order.
func (o *operation) tidy(s *step) error {
	var err error
	if ownFactor(s.Call) {
		err = o.e.comm.FreeOp(s.op)
	}
	if s.scratch != nil {
		err = errors.Join(err, s.scratch.FreeOn(o.e.stream))
	}
	return err
}

// buffer describes memory to NCCL. Missing memory is the zero Buffer.
func (o *operation) buffer(s *step, m engine.Mem) nccl.Buffer {
	if m.Nothing() {
		return nccl.Buffer{}
	}
	return nccl.Known(o.e.dev, uintptr(m.Ptr), m.N, types[m.Type])
}

// start passes one even call to NCCL, or an uneven one to startUneven. Host calls and calls without elements
// start nothing.
func (o *operation) start(s *step) error {
	e := o.e
	if s.Verb == engine.Barrier {
		if o.stream == nil {
			return nil // agree has waited for all ranks
		}
		one := nccl.Of(e.one)
		return e.comm.AllReduce(one, one, nccl.Sum, e.stream)
	}
	if !s.OnDevice() {
		return nil
	}
	if s.Uneven {
		return o.startUneven(s)
	}
	src, dst := o.buffer(s, s.Src), o.buffer(s, s.Dst)
	if src.Len() == 0 && dst.Len() == 0 {
		return nil
	}
	switch s.Verb {
	case engine.AllReduce:
		return e.comm.AllReduce(src, dst, s.op, e.stream)
	case engine.Reduce:
		return e.comm.Reduce(src, dst, s.op, s.Root, e.stream)
	case engine.Broadcast:
		return e.comm.Broadcast(src, src, s.Root, e.stream)
	case engine.AllGather:
		return e.comm.AllGather(src, dst, e.stream)
	case engine.ReduceScatter:
		return e.comm.ReduceScatter(src, dst, s.op, e.stream)
	case engine.Gather:
		return e.comm.Gather(src, dst, s.Root, e.stream)
	case engine.Scatter:
		return e.comm.Scatter(src, dst, s.Root, e.stream)
	default:
		if s.scratch != nil {
			src = nccl.Known(e.dev, s.scratch.Pointer(), s.Src.N, types[s.Src.Type])
		}
		return e.comm.AllToAll(src, dst, e.stream)
	}
}

// startUneven composes an uneven call, which NCCL does not have, of several calls of NCCL. It is
// called in a group of NCCL.
func (o *operation) startUneven(s *step) error {
	e := o.e
	root := e.rank == s.Root
	for r := range e.size {
		var err error
		switch s.Verb {
		case engine.AllGather:
			if dst := o.buffer(s, s.DstParts[r]); dst.Len() > 0 {
				src := dst
				if r == e.rank {
					src = o.buffer(s, s.Src)
				}
				err = e.comm.Broadcast(src, dst, r, e.stream)
			}
		case engine.ReduceScatter:
			if src := o.buffer(s, s.SrcParts[r]); src.Len() > 0 {
				err = e.comm.Reduce(src, o.buffer(s, s.Dst), s.op, r, e.stream)
			}
		case engine.Gather:
			var send, recv engine.Mem
			if r == s.Root {
				send = s.Src
			}
			if root {
				recv = s.DstParts[r]
			}
			err = o.exchange(s, r, send, recv)
		case engine.Scatter:
			var send, recv engine.Mem
			if root {
				send = s.SrcParts[r]
			}
			if r == s.Root {
				recv = s.Dst
			}
			err = o.exchange(s, r, send, recv)
		default:
			err = o.exchange(s, r, s.SrcParts[r], s.DstParts[r])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// exchange sends to and receives from a rank, which may be this one. It skips empty buffers. It is
// called in a group of NCCL.
func (o *operation) exchange(s *step, peer int, send, recv engine.Mem) error {
	e := o.e
	if peer == e.rank && send.Ptr == recv.Ptr {
		return nil // in place
	}
	var err error
	if send.N > 0 {
		err = e.comm.Send(o.buffer(s, send), peer, e.stream)
	}
	if err == nil && recv.N > 0 {
		err = e.comm.Recv(o.buffer(s, recv), peer, e.stream)
	}
	return err
}
