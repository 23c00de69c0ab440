package torch_test

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/nccl"
	"github.com/tutti-go/tutti/torch"
)

// A rank that receives the tensor that Python's rank 0 sends with dist.broadcast(t, 0).
func ExampleJoin() {
	ctx := context.Background()
	receive := func() error {
		group, err := torch.Join(ctx, torch.Config{}) // rank and address are torchrun's variables
		if err != nil {
			return err
		}
		defer group.Close()
		weights, err := cuda.Alloc[float32](group.Device(), 1<<20)
		if err != nil {
			return err
		}
		defer weights.Free() //nolint:errcheck // the error has no consequence here
		return group.Broadcast(ctx, nccl.Of(weights), 0)
	}
	fmt.Println(receive())
	// Output:
	// tutti: torch.Join on rank 0: invalid argument: the number of ranks is not set (Config.Size or WORLD_SIZE)
}
