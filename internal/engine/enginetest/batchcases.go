package enginetest

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// batchCases are batches of operations: small ones, which an engine may fuse, large
// ones, and both together.
func batchCases(opt Options) []Case {
	var cases []Case
	rounds := 40
	if opt.Light {
		rounds = 15
	}
	for _, ranks := range opt.ranks() {
		for _, kind := range []struct {
			name string
			draw func(*random) int // returns the size of a share, in bytes
		}{
			{"small", func(r *random) int { return r.below(100) }},
			{"large", func(r *random) int { return 4<<10 + r.below(20<<10) }},
			{"mixed", func(r *random) int { return r.below(100) << (r.below(2) * 8) }},
		} {
			cases = append(cases, Case{
				Name: fmt.Sprintf("batch/%s/ranks=%d", kind.name, ranks), Ranks: ranks,
				Body: func(ctx context.Context, r *Rank) error {
					rnd := random(mix(uint64(ranks)))
					for range rounds {
						ops := make([]Op, 2+rnd.below(12))
						for i := range ops {
							ops[i] = opt.randomOp(&rnd, kind.draw)
						}
						if err := r.Do(ctx, ops...); err != nil {
							return err
						}
					}
					return nil
				},
			})
		}
		for _, v := range opt.verbs() {
			cases = append(cases, opt.repeatedOpBatch(v, ranks))
		}
	}
	return cases
}

// repeatedOpBatch repeats one operation in a batch, in every form. The engine's
// scratch memory must not be shared between the operations.
func (o Options) repeatedOpBatch(v engine.Verb, ranks int) Case {
	return Case{
		Name: fmt.Sprintf("batch/%v/ranks=%d", v, ranks), Ranks: ranks,
		Body: func(ctx context.Context, r *Rank) error {
			const repeats = 6
			sizes := []int{5, 5000}
			return o.sweepOps(v, kernel.Float32, sizes, []engine.ReduceOp{engine.Sum}, func(op Op) error {
				ops := make([]Op, repeats)
				for i := range ops {
					ops[i] = op
					ops[i].Seed += uint64(i) << 32
					ops[i].Root += i
				}
				return r.Do(ctx, ops...)
			})
		},
	}
}

// randomOp draws an operation whose shares have about as many bytes as draw
// returns.
func (o Options) randomOp(r *random, draw func(*random) int) Op {
	verbs := o.allVerbs()
	verb := verbs[r.below(len(verbs))]
	op := Op{Verb: verb, Exact: !o.RankOrder, Numbers: o.Numbers, Seed: r.next(), Root: r.below(16)}
	types := o.types()
	op.Type = types[r.below(len(types))]
	op.N = draw(r) / op.Type.Size()
	if op.reduces() {
		of := o.reduceOps(op.Verb, op.Type)
		op.ReduceOp = of[r.below(len(of))]
	}
	forms := op.forms()
	form := forms[r.below(len(forms))]
	op.InPlace, op.Uneven = form.InPlace, form.Uneven
	if r.below(4) == 0 {
		op.Name = fmt.Sprintf("layer %d, a name that is longer than some engines show", r.below(3))
	}
	return op
}
