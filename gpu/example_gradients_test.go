package gpu_test

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
)

// gradient stands for the backward pass: it returns the gradient of one parameter, in the memory of a GPU.
func gradient(dev *cuda.Device, parameter int) (*cuda.Slice[float32], error) {
	g, err := cuda.Alloc[float32](dev, parameter+1)
	if err == nil {
		err = g.Fill(float32(parameter))
	}
	return g, err
}

// averageGradients is one rank's step. The gradients of all parameters are averaged as one Batch.
func averageGradients(ctx context.Context, c *tutti.Comm) error {
	dev, err := cuda.Open(c.Rank(), nil) // the device that gpu.Auto has chosen
	if err != nil {
		return err
	}
	defer dev.Close()
	b, grads := c.Batch(), make([]*cuda.Slice[float32], 3)
	for p := range grads {
		if grads[p], err = gradient(dev, p); err != nil {
			return err
		}
		defer grads[p].Free() //nolint:errcheck // the error has no consequence here
		b.AllReduce(gpu.Of(grads[p]), tutti.Avg)
	}
	if err := b.Run(ctx); err != nil || c.Rank() > 0 { // returns when the GPU is done
		return err
	}
	for _, g := range grads {
		numbers := make([]float32, g.Len())
		err = g.CopyTo(numbers)
		fmt.Println(numbers, err)
	}
	return err
}

// Example_gradients averages the gradients of every parameter over up to two GPUs of one process. Each GPU has a
// rank, which is a goroutine.
func Example_gradients() {
	n, _ := cuda.Devices()
	fmt.Println(tutti.RunLocal(context.Background(), min(n, 2), tutti.Config{Device: gpu.Auto()}, averageGradients))
	// Output:
	// [0] <nil>
	// [1 1] <nil>
	// [2 2 2] <nil>
	// <nil>
}
