package gpu_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tutti-go/tutti"
)

// TestInfo checks what Info says of the device: that of this rank, also in a group with another order.
func TestInfo(t *testing.T) {
	for path, cfg := range map[string]tutti.Config{"nccl": {}, "host staging": {HostStaging: true}} {
		ok(t, run(t, 2, cfg, func(ctx context.Context, r *rank) error {
			reverse, err := r.Split(ctx, 0, -r.Rank())
			if err != nil {
				return err
			}
			defer reverse.Close()
			if reverse.Rank() == r.Rank() {
				return fmt.Errorf("Split has not reversed the ranks")
			}
			for _, c := range []*tutti.Comm{r.Comm, reverse} {
				in := c.Info()
				if in.DevicePath != path || in.Device != r.dev.Ordinal() || in.Engine != "shm" || in.Rank != c.Rank() {
					return fmt.Errorf("%+v on device %d", in, r.dev.Ordinal())
				}
			}
			return nil
		}))
	}
}
