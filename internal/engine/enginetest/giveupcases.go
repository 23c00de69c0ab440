package enginetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// giveUpCases are ranks that are cancelled just when the other ranks arrive. A rank
// whose operation succeeds must have the right data, although the cancelled rank
// writes to its memory at once. The timing is random, so each case runs many
// rounds, each in a group of its own.
func giveUpCases(opt Options) []Case {
	rounds := 60
	if opt.Light {
		rounds = 20
	}
	add := func(name string, try func(ctx context.Context, r *Rank) error) Case {
		return Case{
			Name: "give up/" + name, Ranks: 3,
			Body: func(ctx context.Context, r *Rank) error {
				for i := range rounds {
					if err := giveUp(ctx, r, i, try); err != nil {
						return fmt.Errorf("round %d: %w", i, err)
					}
				}
				return nil
			},
		}
	}
	cases := []Case{add("message", func(ctx context.Context, r *Rank) error {
		var list []Transfer
		for from := range r.Size() {
			list = append(list, Transfer{From: from, To: from + 1, Type: kernel.Float32, N: 100_000})
		}
		return r.exchange(ctx, false, list...)
	})}
	for _, v := range opt.verbs() {
		op := Op{Verb: v, ReduceOp: engine.Max, Type: kernel.Int32, N: 30_000}
		cases = append(cases, add(v.String(), func(ctx context.Context, r *Rank) error { return r.Do(ctx, op) }))
	}
	return cases
}

// giveUp makes one rank of a new group give up during an operation.
func giveUp(ctx context.Context, r *Rank, round int, try func(context.Context, *Rank) error) error {
	sub, err := r.Dup(ctx)
	if err != nil {
		return err
	}
	if r.Rank() == round%r.Size() {
		ctx = lateCancel(ctx)
	}
	err = try(ctx, sub)
	if err != nil && !errors.Is(err, engine.ErrAborted) && !errors.Is(err, engine.ErrRankLost) {
		return err
	}
	return sub.Close()
}
