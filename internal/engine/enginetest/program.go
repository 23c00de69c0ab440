package enginetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// A Program is what all ranks of a group do, step by step. It is valid for a group
// of any size.
type Program []Step

// A Step is a batch, an exchange of messages, or programs for other groups.
type Step struct {
	Ops       []Op       `json:",omitempty"`
	Transfers []Transfer `json:",omitempty"`
	Backwards bool       `json:",omitempty"`

	// Colours splits the group by rank; Inside runs in the new groups.
	Colours []int   `json:",omitempty"`
	Inside  Program `json:",omitempty"`

	// AtOnce runs at the same time, each program in a group of its own.
	AtOnce []Program `json:",omitempty"`
}

// Run runs one rank's part of the program, step by step, until the first error. All ranks must run the same
// program.
func (p Program) Run(ctx context.Context, r *Rank) error {
	for i := range p {
		s := &p[i]
		var err error
		switch {
		case len(s.Ops) > 0:
			err = r.Do(ctx, s.Ops...)
		case len(s.Transfers) > 0:
			err = r.exchange(ctx, s.Backwards, s.Transfers...)
		case len(s.Colours) > 0:
			err = s.runInside(ctx, r)
		default:
			err = s.runAtOnce(ctx, r)
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func (s *Step) runInside(ctx context.Context, r *Rank) error {
	key := r.Rank()
	if s.Backwards {
		key = -key
	}
	sub, err := r.Split(ctx, s.Colours[r.Rank()%len(s.Colours)], key)
	if err != nil || sub == nil {
		return err
	}
	return errors.Join(s.Inside.Run(ctx, sub), sub.Close())
}

// runAtOnce runs each program of the step in a goroutine, on a duplicate of the group. Each rank starts them
// in another order. If one fails, FailGroups ends the others. It waits for all goroutines and returns all
// errors.
func (s *Step) runAtOnce(ctx context.Context, r *Rank) error {
	subs := make([]*Rank, len(s.AtOnce))
	for i := range subs {
		var err error
		if subs[i], err = r.Dup(ctx); err != nil {
			return err
		}
	}
	errs := make(chan error, len(subs))
	for i := range subs {
		k := (i + r.Rank()) % len(subs)
		go func() {
			err := s.AtOnce[k].Run(ctx, subs[k])
			if err != nil {
				r.FailGroups(err)
			}
			errs <- errors.Join(err, subs[k].Close())
		}()
	}
	var all error
	for range subs {
		all = errors.Join(all, <-errs)
	}
	return all
}

// runPrograms runs random programs.
func runPrograms(t *testing.T, world World, opt Options) {
	rapid.Check(t, func(rt *rapid.T) {
		ranks := rapid.SampledFrom([]int{1, 2, 3, 4, 5, 7, 8}).Draw(rt, "ranks")
		program := opt.programs(2).Draw(rt, "program")
		c := Case{Ranks: ranks, Body: program.Run}
		if _, err := runBodies(t, world(t, ranks), opt, &c); err != nil {
			rt.Fatal(err)
		}
	})
	checkGoroutines(t)
}

// programs draws programs that make nested groups down to a depth. It runs before the ranks, on the test's
// goroutine.
func (o Options) programs(depth int) *rapid.Generator[Program] {
	kinds := []string{"batch", "batch", "exchange"}
	if depth > 0 {
		kinds = append(kinds, "split", "at once")
	}
	step := rapid.Custom(func(t *rapid.T) Step {
		switch rapid.SampledFrom(kinds).Draw(t, "kind") {
		case "batch":
			return Step{Ops: rapid.SliceOfN(rapid.Custom(o.drawOp), 1, 6).Draw(t, "ops")}
		case "exchange":
			return Step{
				Transfers: rapid.SliceOfN(rapid.Custom(o.drawTransfer), 1, 12).Draw(t, "transfers"),
				Backwards: rapid.Bool().Draw(t, "backwards"),
			}
		case "split":
			return Step{
				Colours:   rapid.SliceOfN(rapid.IntRange(-1, 2), 1, 8).Draw(t, "colours"),
				Backwards: rapid.Bool().Draw(t, "backwards"),
				Inside:    o.programs(depth-1).Draw(t, "inside"),
			}
		default:
			return Step{AtOnce: rapid.SliceOfN(o.programs(depth-1), 1, 3).Draw(t, "at once")}
		}
	})
	most := 12
	if depth < 2 {
		most = 5
	}
	return rapid.Map(rapid.SliceOfN(step, 1, most), func(steps []Step) Program { return steps })
}

// drawBytes draws the size of a share: usually small, sometimes large.
func drawBytes(t *rapid.T) int {
	most := rapid.SampledFrom([]int{16, 200, 4 << 10, 40 << 10}).Draw(t, "most")
	return rapid.IntRange(0, most).Draw(t, "bytes")
}

// drawOp draws one operation of a batch, with a type, operator, form, size and name that fit each other.
func (o Options) drawOp(t *rapid.T) Op {
	op := Op{
		Verb:  rapid.SampledFrom(o.allVerbs()).Draw(t, "verb"),
		Type:  rapid.SampledFrom(o.types()).Draw(t, "type"),
		Root:  rapid.IntRange(0, 7).Draw(t, "root"),
		Name:  rapid.SampledFrom([]string{"", "", "a", "bias of a layer with quite a long name"}).Draw(t, "name"),
		Seed:  rapid.Uint64().Draw(t, "seed"),
		Exact: !o.RankOrder, Numbers: o.Numbers,
	}
	op.N = drawBytes(t) / op.Type.Size()
	if op.reduces() {
		op.ReduceOp = rapid.SampledFrom(o.reduceOps(op.Verb, op.Type)).Draw(t, "red")
	}
	form := rapid.SampledFrom(op.forms()).Draw(t, "form")
	op.InPlace, op.Uneven = form.InPlace, form.Uneven
	return op
}

func (o Options) drawTransfer(t *rapid.T) Transfer {
	m := Transfer{
		From: rapid.IntRange(0, 7).Draw(t, "from"),
		To:   rapid.IntRange(0, 7).Draw(t, "to"),
		Tag:  rapid.IntRange(0, 2).Draw(t, "tag"),
		Type: rapid.SampledFrom(o.types()).Draw(t, "type"),
		Seed: rapid.Uint64().Draw(t, "seed"),
	}
	m.N = drawBytes(t) / m.Type.Size()
	return m
}
