package network

import (
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// A reduction is how one rank combines elements. Avg and PreMul are sums of
// elements that each rank multiplies by its own factor first.
type reduction struct {
	op     kernel.Op
	scaled bool    // elements are multiplied before they are combined
	factor float64 // of this rank's elements
}

func (e *Engine) reduction(c *engine.Call) reduction {
	return reduction{op: c.Red.Info().Kernel, scaled: c.Scales(), factor: c.Factor(e.size)}
}

// load copies a source to dst, multiplied by this rank's factor if there is one.
func (r *reduction) load(dst, src engine.Mem) {
	if r.scaled {
		kernel.Scale(dst.Ptr, src.Ptr, dst.N, dst.Type, r.factor)
		return
	}
	engine.Copy(dst, src)
}

// loaded returns the same reduction for sources that load has already multiplied.
func (r reduction) loaded() reduction {
	r.scaled = false
	return r
}

// add combines received elements with a source of this rank.
func (r *reduction) add(dst, got, own engine.Mem) {
	if r.scaled {
		kernel.ScaleAdd(dst.Ptr, got.Ptr, own.Ptr, dst.N, dst.Type, r.factor)
		return
	}
	kernel.Reduce(dst.Ptr, got.Ptr, own.Ptr, dst.N, dst.Type, r.op)
}

// inOrder combines one source per rank, in rank order, into dst. The sources must
// have been multiplied by load. Partial results go to acc, which may be the first
// source; dst may be any source.
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
