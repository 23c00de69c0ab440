package value_test

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/value"
)

// ExampleSend passes a struct from rank 1 to rank 0.
func ExampleSend() {
	type Task struct {
		Name string
		Args map[string]float64
	}
	err := tutti.RunLocal(context.Background(), 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		const tag = 1
		if c.Rank() == 1 {
			return value.Send(ctx, c, 0, Task{"fit", map[string]float64{"rate": 0.5}}, tag)
		}
		task, m, err := value.Recv[Task](ctx, c, tutti.AnyRank, tag)
		if err != nil {
			return err
		}
		fmt.Println(task, "from rank", m.From)
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: {fit map[rate:0.5]} from rank 1
}

// ExampleAllReduce adds up the counts of all ranks.
func ExampleAllReduce() {
	err := tutti.RunLocal(context.Background(), 3, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		counts := map[string]int{"ranks": 1, fmt.Sprint("rank ", c.Rank()): 1}
		total, err := value.AllReduce(ctx, c, counts, func(a, b map[string]int) map[string]int {
			for key, n := range b {
				a[key] += n
			}
			return a
		})
		if c.Rank() == 1 {
			fmt.Println(total)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: map[rank 0:1 rank 1:1 rank 2:1 ranks:3]
}
