package tuttitest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/tuttitest"
)

// Rank 2 of four crashes during an operation. The other ranks get an error that
// names it.
func Example() {
	opt := tuttitest.Options{
		Ranks: 4, Seed: 1,
		Faults: []tuttitest.Fault{{Kind: tuttitest.Crash, Rank: 2, Message: 11}},
	}
	res, err := tuttitest.Simulate(opt, func(ctx context.Context, c *tutti.Comm) error {
		for {
			sum := []float64{1}
			if err := c.AllReduce(ctx, tutti.Of(sum), tutti.Sum); err != nil {
				return err
			}
		}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for rank, err := range res.Errs {
		if lost := (*tutti.Error)(nil); !res.Dead[rank] && errors.As(err, &lost) {
			fmt.Println("rank", rank, "lost", lost.Lost)
		}
	}
	// Output:
	// rank 0 lost [2]
	// rank 1 lost [2]
	// rank 3 lost [2]
}

// Example_shrink shows how the other ranks continue without rank 2, which crashes.
func Example_shrink() {
	opt := tuttitest.Options{
		Ranks: 4, Seed: 1,
		Faults: []tuttitest.Fault{{Kind: tuttitest.Crash, Rank: 2, Message: 11}},
	}
	res, err := tuttitest.Simulate(opt, func(ctx context.Context, c *tutti.Comm) error {
		var err error
		for err == nil {
			_, err = tutti.AllReduceValue(ctx, c, 1, tutti.Sum)
		}
		next, _, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		defer next.Close()
		n, err := tutti.AllReduceValue(ctx, next, 1, tutti.Sum)
		if next.Rank() == 0 {
			fmt.Println(n, "ranks are left")
		}
		return err
	})
	fmt.Println(err, res.Errs[0], res.Errs[1], res.Errs[3])
	// Output:
	// 3 ranks are left
	// <nil> <nil> <nil> <nil>
}

// Example_grow shows how a newcomer takes the place of rank 2, which crashes.
func Example_grow() {
	opt := tuttitest.Options{
		Ranks: 4, Newcomers: []time.Duration{0}, Seed: 1,
		Faults: []tuttitest.Fault{{Kind: tuttitest.Crash, Rank: 2, Message: 11}},
	}
	res, err := tuttitest.Simulate(opt, func(ctx context.Context, c *tutti.Comm) error {
		if !c.Info().Late {
			var err error
			for err == nil {
				_, err = tutti.AllReduceValue(ctx, c, 1, tutti.Sum)
			}
			rest, _, err := c.Shrink(ctx)
			if err != nil {
				return err
			}
			if c, err = rest.Grow(ctx, 1); err != nil {
				return err
			}
		}
		defer c.Close()
		n, err := tutti.AllReduceValue(ctx, c, 1, tutti.Sum)
		if c.Info().Late {
			fmt.Println("the newcomer is rank", c.Rank(), "of", n)
		}
		return err
	})
	fmt.Println(err, res.Errs[0], res.Errs[1], res.Errs[3], res.Errs[4])
	// Output:
	// the newcomer is rank 3 of 4
	// <nil> <nil> <nil> <nil> <nil>
}
