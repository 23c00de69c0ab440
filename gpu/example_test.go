package gpu_test

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
)

// One process drives up to two GPUs, with one rank for each. A program with one process for each GPU
// calls tutti.Join with the same Config.
func Example() {
	n, err := cuda.Devices()
	if err != nil {
		fmt.Println(err)
		return
	}
	err = tutti.RunLocal(context.Background(), min(n, 2), tutti.Config{Device: gpu.Auto()}, func(ctx context.Context, c *tutti.Comm) error {
		dev, err := cuda.Open(c.Rank(), nil)
		if err != nil {
			return err
		}
		defer dev.Close()
		grad, err := cuda.Alloc[float32](dev, 4)
		if err != nil {
			return err
		}
		defer grad.Free() //nolint:errcheck // the error has no consequence here
		if err := grad.Fill(1.5); err != nil {
			return err
		}
		if err := c.AllReduce(ctx, gpu.Of(grad), tutti.Avg); err != nil {
			return err
		}
		if c.Rank() > 0 {
			return nil
		}
		numbers := make([]float32, 4)
		err = grad.CopyTo(numbers)
		fmt.Println(numbers)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [1.5 1.5 1.5 1.5]
}
