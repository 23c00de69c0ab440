package enginetest

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/race"
)

// verbs are the verbs that carry data. The verbs that NCCL lacks come last.
var verbs = []engine.Verb{
	engine.AllReduce, engine.Reduce, engine.Broadcast, engine.AllGather,
	engine.ReduceScatter, engine.Gather, engine.Scatter, engine.AllToAll,
	engine.Scan, engine.ExScan,
}

// verbs returns the verbs that carry data and that the engine has.
func (o Options) verbs() []engine.Verb {
	if o.NCCL {
		return verbs[:8]
	}
	return verbs
}

// allVerbs is verbs with Barrier.
func (o Options) allVerbs() []engine.Verb {
	list := o.verbs()
	return append(list[:len(list):len(list)], engine.Barrier)
}

// reds are the operators: those for integers first, those for floats last.
var reds = []engine.ReduceOp{
	engine.And, engine.Or, engine.Xor, engine.Sum, engine.Prod, engine.Min, engine.Max, engine.PreMul, engine.Avg,
}

// ReduceOpsOf returns the operators for a verb and a type's elements: Avg and PreMul are for
// floats, And, Or and Xor for integers, and a Scan has no Avg.
func ReduceOpsOf(v engine.Verb, t kernel.DType) []engine.ReduceOp {
	switch {
	case !t.IsFloat():
		return reds[:7]
	case v == engine.Scan || v == engine.ExScan:
		return reds[3:8]
	}
	return reds[3:]
}

// reduceOps is ReduceOpsOf without the operators that the engine lacks.
func (o Options) reduceOps(v engine.Verb, t kernel.DType) []engine.ReduceOp {
	if o.NCCL && !t.IsFloat() {
		return reds[3:7]
	}
	return ReduceOpsOf(v, t)
}

const (
	lineBytes  = 64       // a cache line
	largeBytes = 64 << 10 // one element more makes it no power of two
	hugeBytes  = 4 << 20
)

// types returns the element types that a suite covers.
func (o Options) types() []kernel.DType {
	if o.Light {
		return []kernel.DType{kernel.Int8, kernel.BFloat16, kernel.Float32, kernel.Uint64}
	}
	var types []kernel.DType
	for t := kernel.Int8; t.Valid(); t++ {
		if !o.NCCL || t != kernel.Int16 && t != kernel.Uint16 {
			types = append(types, t)
		}
	}
	return types
}

func (o Options) ranks() []int {
	if o.Ranks != nil {
		return o.Ranks
	}
	if o.Light {
		return []int{1, 2, 3, 5}
	}
	return []int{1, 2, 3, 5, 8}
}

// sizes returns numbers of elements.
func (o Options) sizes(t kernel.DType) []int {
	if o.Light {
		return []int{0, 7, lineBytes / t.Size(), 1027}
	}
	return []int{0, 1, 7, 127, lineBytes / t.Size(), largeBytes/t.Size() + 1}
}

// share returns how many elements one rank has, if the total is the given number of
// bytes and the verb divides it.
func share(v engine.Verb, t kernel.DType, bytes, ranks int) int {
	if o := (Op{Verb: v}); o.dividesSource() || o.dividesResult() {
		bytes /= ranks
	}
	return bytes / t.Size()
}

// sweepCases are every verb with every type on every number of ranks. Each case
// covers the operators, the sizes and the layouts.
func sweepCases(opt Options) []Case {
	var cases []Case
	for _, v := range opt.verbs() {
		for _, t := range opt.types() {
			for _, n := range opt.ranks() {
				cases = append(cases, opt.sweep(v, t, n, opt.sizes(t), opt.reduceOps(v, t)))
			}
		}
	}
	if opt.Light {
		return cases
	}
	const many = 16
	huge := []kernel.DType{kernel.Float32, kernel.BFloat16, kernel.Int64, kernel.Uint8}
	if race.Enabled {
		huge = huge[:1]
	}
	for i, v := range opt.verbs() {
		for _, t := range []kernel.DType{kernel.Float16, kernel.Float64, kernel.Int32} {
			cases = append(cases, opt.sweep(v, t, many, []int{0, 7, share(v, t, largeBytes, many) + 1}, opt.reduceOps(v, t)))
		}
		for j, t := range huge {
			n := opt.ranks()[(1+(i+j)%4)%len(opt.ranks())]
			reds := opt.reduceOps(v, t)
			c := opt.sweep(v, t, n, []int{share(v, t, hugeBytes, n)}, reds[(i+j)%len(reds):][:1])
			c.Name += "/4MiB"
			cases = append(cases, c)
		}
	}
	return cases
}

func (o Options) sweep(v engine.Verb, t kernel.DType, ranks int, sizes []int, reds []engine.ReduceOp) Case {
	return Case{
		Name: fmt.Sprintf("%v/%v/ranks=%d", v, t, ranks), Ranks: ranks,
		Body: func(ctx context.Context, r *Rank) error {
			return o.sweepOps(v, t, sizes, reds, func(op Op) error { return r.Do(ctx, op) })
		},
	}
}

// sweepOps calls do with every variant of a verb, in the same order on all ranks, until do returns an error.
func (o Options) sweepOps(v engine.Verb, t kernel.DType, sizes []int, reds []engine.ReduceOp, do func(Op) error) error {
	op := Op{Verb: v, Type: t, Exact: !o.RankOrder, Numbers: o.Numbers, Seed: uint64(t)}
	if !op.reduces() {
		reds = []engine.ReduceOp{0}
	}
	for _, op.N = range sizes {
		for _, op.ReduceOp = range reds {
			for _, form := range op.forms() {
				op.InPlace, op.Uneven = form.InPlace, form.Uneven
				op.Root++
				if err := do(op); err != nil {
					return err
				}
			}
		}
		op.Seed += 1 << 8
	}
	return nil
}

// forms returns the possible layouts of a verb's memory.
func (o Op) forms() []Op {
	switch {
	case o.Verb == engine.Broadcast:
		return []Op{{}}
	case o.Verb == engine.AllToAll:
		return []Op{{}, {InPlace: true}, {Uneven: true}}
	case o.dividesSource() || o.dividesResult():
		return []Op{{}, {InPlace: true}, {Uneven: true}, {InPlace: true, Uneven: true}}
	}
	return []Op{{}, {InPlace: true}}
}
