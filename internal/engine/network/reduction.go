package network

import (
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// A reduction is how one rank combines elements.
type reduction struct {
	op     kernel.Op
	scaled bool // elements are multiplied before they are combined
	factor float64
}

func (e *Engine) reduction(c *engine.Call) reduction {
	return reduction{op: c.Red.Info().Kernel, scaled: c.Scales(), factor: c.Factor(e.size)}
}

// load writes a source to dst as it is combined: multiplied by its factor.
func (r *reduction) load(dst, src engine.Mem) {
	if r.scaled {
		kernel.Scale(dst.Ptr, src.Ptr, dst.N, dst.Type, r.factor)
		return
	}
	engine.Copy(dst, src)
}

// loaded is the same reduction for sources that have gone through load.
func (r reduction) loaded() reduction {
	r.scaled = false
	return r
}

// add combines what was received with a source of this rank's.
func (r *reduction) add(dst, got, own engine.Mem) {
	if r.scaled {
		kernel.ScaleAdd(dst.Ptr, got.Ptr, own.Ptr, dst.N, dst.Type, r.factor)
		return
	}
	kernel.Reduce(dst.Ptr, got.Ptr, own.Ptr, dst.N, dst.Type, r.op)
}

// inOrder combines one source per rank, in rank order, into dst. The sources
// have gone through load. Partial results go to acc, which may be the first of
// them; dst may be any.
func (r *reduction) inOrder(dst, acc engine.Mem, source func(rank int) engine.Mem, ranks int) {
	a := source(0)
	for i := 1; i < ranks; i++ {
		to := acc
		if i == ranks-1 {
			to = dst
		}
		kernel.Reduce(to.Ptr, a.Ptr, source(i).Ptr, dst.N, dst.Type, r.op)
		a = to
	}
}
