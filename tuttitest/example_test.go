package tuttitest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/tuttitest"
)

// Rank 2 of four crashes in the middle of an operation. The others learn of it.
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
