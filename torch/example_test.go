package torch_test

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/nccl"
	"github.com/tutti-go/tutti/torch"
)

// A rank that receives what Python's rank 0 sends by dist.broadcast(t, 0).
func ExampleJoin() {
	ctx := context.Background()
	receive := func() error {
		group, err := torch.Join(ctx, torch.Config{}) // torchrun's names say which rank
		if err != nil {
			return err
		}
		defer group.Close()
		weights, err := cuda.Alloc[float32](group.Device(), 1<<20)
		if err != nil {
			return err
		}
		defer weights.Free() //nolint:errcheck // nothing depends on it any more
		return group.Broadcast(ctx, nccl.Of(weights), 0)
	}
	fmt.Println(receive())
	// Output:
	// tutti: torch.Join on rank 0: invalid argument: neither Config.Size nor WORLD_SIZE says how many ranks there are
}
