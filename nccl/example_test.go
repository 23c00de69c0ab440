package nccl_test

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/nccl"
)

// One goroutine drives all devices of the process. Here there is one device.
func Example() {
	err := sumOverDevices(context.Background(), 1)
	fmt.Println(err)
	// Output:
	// device 0 has 1
	// <nil>
}

// sumOverDevices adds a slice over n devices, all from this goroutine: Group starts the ranks' AllReduces as
// one operation. It frees everything before it returns, also after an error.
func sumOverDevices(ctx context.Context, n int) error {
	lib, err := nccl.Load("")
	if err != nil {
		return err
	}
	devices := make([]*cuda.Device, n)
	streams := make([]*cuda.Stream, n)
	slices := make([]*cuda.Slice[float32], n)
	for i := range n {
		if devices[i], err = cuda.Open(i, nil); err != nil {
			return err
		}
		defer devices[i].Close()
		if streams[i], err = devices[i].NewStream(); err != nil {
			return err
		}
		defer streams[i].Close()
		if slices[i], err = cuda.Alloc[float32](devices[i], 1000); err != nil {
			return err
		}
		defer slices[i].Free() //nolint:errcheck // the error has no consequence here
		if err := slices[i].Fill(1); err != nil {
			return err
		}
	}
	comms, err := lib.InitAll(ctx, devices, nccl.Config{})
	if err != nil {
		return err
	}
	defer func() {
		for _, c := range comms {
			c.Close()
		}
	}()
	err = lib.Group(func() error {
		for i, c := range comms {
			x := nccl.Of(slices[i])
			if err := c.AllReduce(x, x, nccl.Sum, streams[i]); err != nil {
				return err
			}
		}
		return nil
	})
	for i := 0; i < n && err == nil; i++ {
		numbers := make([]float32, 1000)
		if err = streams[i].Wait(ctx); err == nil {
			err = slices[i].CopyTo(numbers)
			fmt.Println(devices[i], "has", numbers[0])
		}
	}
	return err
}
