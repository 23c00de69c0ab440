// Regression fits a line to points that are divided among ranks: each rank
// computes the gradient of its own points, an AllReduce averages the
// gradients, and all ranks take the same step.
//
//	go run ./examples/regression [-ranks 4] [-points 100000] [-steps 200]
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"github.com/tutti-go/tutti"
)

func main() {
	ranks := flag.Int("ranks", 4, "number of ranks, each a goroutine")
	points := flag.Int("points", 100_000, "points of each rank")
	steps := flag.Int("steps", 200, "steps of gradient descent")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := tutti.RunLocal(ctx, *ranks, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		return fit(ctx, c, *points, *steps)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fit is what each rank does, in its own goroutine with its own data. It returns the first error of
// an AllReduce, as when ctx ends; RunLocal then ends the other ranks.
func fit(ctx context.Context, c *tutti.Comm, points, steps int) error {
	random := rand.New(rand.NewPCG(1, uint64(c.Rank())))
	xs, ys := make([]float64, points), make([]float64, points)
	for i := range xs {
		xs[i] = 2*random.Float64() - 1
		ys[i] = 3*xs[i] - 2 + 0.1*random.NormFloat64()
	}
	slope, offset := 0.0, 0.0
	start := time.Now()
	for step := range steps {
		// The gradient and the squared error of this rank's points.
		sums := make([]float64, 3)
		for i, x := range xs {
			miss := slope*x + offset - ys[i]
			sums[0] += miss * x
			sums[1] += miss
			sums[2] += miss * miss
		}
		if err := c.AllReduce(ctx, tutti.Of(sums), tutti.Avg); err != nil {
			return err
		}
		slope -= sums[0] / float64(points)
		offset -= sums[1] / float64(points)
		if c.Rank() == 0 && (step%max(steps/5, 1) == 0 || step == steps-1) {
			fmt.Printf("step %3d: y = %.4f x %+.4f, mean squared error %.4f\n", step, slope, offset, sums[2]/float64(points))
		}
	}
	if c.Rank() == 0 {
		fmt.Printf("%d ranks, %d points each, %d steps in %v\n", c.Size(), points, steps, time.Since(start).Round(time.Millisecond))
	}
	return nil
}
