package enginetest

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// disagreement is a call that one rank makes while all others make another.
type disagreement struct {
	name   string
	all    []Op
	odd    []Op
	silent bool // the engine decides on the text
}

// mismatchCases are ranks that make different calls, in groups of several sizes. All ranks fail with
// ErrMismatch.
func mismatchCases(opt Options) []Case {
	var cases []Case
	sizes := []int{5, 20_000}
	groups := []int{2, 3, 5}
	if opt.Light {
		groups = groups[1:2]
	}
	for _, n := range sizes {
		var list []disagreement
		for _, v := range opt.verbs() {
			list = append(list, opt.callDisagreements(v, n)...)
		}
		list = append(list, batchDisagreements(n)...)
		for i, d := range list {
			for _, ranks := range groups {
				cases = append(cases, d.onRank(i%ranks, ranks, n))
			}
		}
		for _, ranks := range groups {
			for _, v := range opt.verbs() {
				odd := 1 + n%(ranks-1)
				if d, ok := unevenDisagreement(v, n, odd, ranks); ok {
					cases = append(cases, d.onRank(odd, ranks, n))
				}
			}
		}
		cases = append(cases, messageDisagreements(n)...)
	}
	return cases
}

// onRank returns the case in which one rank of a group, odd, disagrees. All ranks fail with ErrMismatch that
// names odd and, unless d is silent, the texts of both calls.
func (d disagreement) onRank(odd, ranks, n int) Case {
	fault := &Fault{Kind: engine.ErrMismatch, Ranks: []int{odd}}
	if !d.silent {
		i := 0
		for d.all[i] == d.odd[i] {
			i++
		}
		fault.Text = []string{d.all[i].text(ranks), d.odd[i].text(ranks)}
	}
	return Case{
		Name: fmt.Sprintf("mismatch/%s/n=%d/rank %d of %d", d.name, n, odd, ranks), Ranks: ranks, Fault: fault,
		Body: func(ctx context.Context, r *Rank) error {
			if err := warmUp(ctx, r); err != nil {
				return r.failed(ctx, err)
			}
			if r.Rank() == odd {
				return r.expectFailure(ctx, d.odd...)
			}
			return r.expectFailure(ctx, d.all...)
		},
	}
}

// callDisagreements are disagreements about one call of verb v: its count, type, verb, operator, root, form
// or name.
func (o Options) callDisagreements(v engine.Verb, n int) []disagreement {
	base := Op{Verb: v, ReduceOp: engine.Sum, Type: kernel.Float32, N: n}
	var list []disagreement
	add := func(what string, change func(o *Op)) {
		odd := base
		change(&odd)
		list = append(list, disagreement{name: fmt.Sprintf("%v/%s", v, what), all: []Op{base}, odd: []Op{odd}})
	}
	add("count", func(o *Op) { o.N++ })
	add("type", func(o *Op) { o.Type = kernel.Int32 })
	add("barrier", func(op *Op) { *op = Op{Verb: engine.Barrier} })
	for _, other := range o.verbs() {
		if other != v {
			add("verb "+other.String(), func(o *Op) { o.Verb = other })
		}
	}
	if base.reduces() {
		add("op", func(o *Op) { o.ReduceOp = engine.Max })
	}
	if v.Rooted() {
		add("root", func(o *Op) { o.Root = 1 })
	}
	if base.dividesSource() || base.dividesResult() {
		add("form", func(o *Op) { o.Uneven = true })
	}
	add("no name", func(o *Op) { o.Name = "gradients" })
	base.Name = "weights"
	add("name", func(o *Op) { o.Name = "gradients" })
	return list
}

// batchDisagreements are disagreements about the contents of a batch.
func batchDisagreements(n int) []disagreement {
	a := Op{Verb: engine.AllReduce, ReduceOp: engine.Sum, Type: kernel.Float32, N: n}
	b := Op{Verb: engine.AllGather, Type: kernel.Int64, N: n}
	c := Op{Verb: engine.Broadcast, Type: kernel.Uint8, N: n}
	d := b
	d.N++
	named := c
	named.Name = "last"
	return []disagreement{
		{name: "batch/one call", all: []Op{a, b, c}, odd: []Op{a, d, c}},
		{name: "batch/name", all: []Op{a, b, c}, odd: []Op{a, b, named}},
		{name: "batch/order", all: []Op{a, b, c}, odd: []Op{a, c, b}},
		{name: "batch/longer", all: []Op{a, b}, odd: []Op{a, b, c}, silent: true},
		{name: "batch/shorter", all: []Op{a, b, c}, odd: []Op{a, b}, silent: true},
		{name: "batch/single", all: []Op{a, b}, odd: []Op{a}, silent: true},
	}
}

// unevenDisagreement is a disagreement about a count of an uneven verb: the odd
// rank sends, or expects, one element more than another rank.
func unevenDisagreement(v engine.Verb, n, odd, ranks int) (disagreement, bool) {
	all := Op{Verb: v, ReduceOp: engine.Sum, Type: kernel.Float32, N: n, Uneven: true, Root: odd + 1}
	if !all.dividesSource() && !all.dividesResult() {
		return disagreement{}, false
	}
	all.Seed = uint64(7*ranks + odd) // the odd rank has the largest count
	more := all
	more.N++
	return disagreement{name: v.String() + "/uneven", all: []Op{all}, odd: []Op{more}, silent: true}, true
}

// messageDisagreements are disagreements about the two sides of a message. The
// third rank gets the same failure.
func messageDisagreements(n int) []Case {
	var cases []Case
	sent := Transfer{From: 0, To: 1, Tag: 3, Type: kernel.Float32, N: n}
	for _, d := range []struct {
		name   string
		change func(*Transfer)
	}{
		{"count", func(t *Transfer) { t.N++ }},
		{"type", func(t *Transfer) { t.Type = kernel.Int32 }},
	} {
		wanted := sent
		d.change(&wanted)
		text := func(t Transfer) string {
			if sent.Type != wanted.Type {
				return t.Type.String()
			}
			return fmt.Sprintf("%d x %v", t.N, t.Type)
		}
		cases = append(cases, Case{
			Name: fmt.Sprintf("mismatch/message/%s/n=%d", d.name, n), Ranks: 3,
			Fault: &Fault{Kind: engine.ErrMismatch, Ranks: []int{0, 1}, Text: []string{text(sent), text(wanted)}},
			Body: func(ctx context.Context, r *Rank) error {
				switch r.Rank() {
				case 0:
					return r.failed(ctx, r.exchange(ctx, false, sent))
				case 1:
					return r.failed(ctx, r.exchange(ctx, false, wanted))
				}
				return r.expectFailure(ctx, Op{Verb: engine.Barrier})
			},
		})
	}
	return cases
}

// warmUp runs a few operations. They succeed, unless another rank has already
// passed them and failed.
func warmUp(ctx context.Context, r *Rank) error {
	for i := range 3 {
		if err := r.Do(ctx, Op{Verb: engine.AllReduce, ReduceOp: engine.Max, Type: kernel.Int32, N: 1 + i*3000}); err != nil {
			return err
		}
	}
	return nil
}
