package tutti_test

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti"
)

// A backend is what the program below needs of its ranks.
type backend interface {
	Average(ctx context.Context, grad []float32) error
}

// ranks is the backend of a job. Tests of the program may use another one.
type ranks struct{ *tutti.Comm }

func (r ranks) Average(ctx context.Context, grad []float32) error {
	return r.AllReduce(ctx, tutti.Of(grad), tutti.Avg)
}

// step is one step of gradient descent. It does not know tutti.
func step(ctx context.Context, b backend, weight, grad []float32) error {
	if err := b.Average(ctx, grad); err != nil {
		return err
	}
	for i := range weight {
		weight[i] -= 0.5 * grad[i]
	}
	return nil
}

// Example_backend keeps tutti behind an interface of the program's own.
func Example_backend() {
	err := tutti.RunLocal(context.Background(), 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		weight, grad := []float32{1, 1}, []float32{float32(c.Rank()), 2}
		err := step(ctx, ranks{c}, weight, grad)
		if c.Rank() == 0 {
			fmt.Println(weight)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [0.75 0]
}
