package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/gpu"
)

// TestShrink continues without rank 1, with a new communicator. Each rank keeps its device, whatever its new
// number is. Rank 1 closes its Comm only after all ranks have returned from their first operation; the
// WaitGroup first counts them.
func TestShrink(t *testing.T) {
	const ranks = 3
	var first sync.WaitGroup // the ranks in their first operation
	first.Add(ranks)
	ok(t, run(t, ranks, tutti.Config{}, func(ctx context.Context, r *rank) error {
		err := r.AllReduce(ctx, gpu.Of(r.x), tutti.Sum)
		first.Done()
		if err != nil {
			return err
		}
		if r.Rank() == 1 {
			first.Wait() // a rank that is still in it would fail too
			return nil   // closes the Comm
		}
		if err := r.AllReduce(ctx, gpu.Of(r.x), tutti.Sum); !errors.Is(err, tutti.ErrRankLost) {
			return fmt.Errorf("%w, want a lost rank", err)
		}
		// After a failed operation the contents of x are undefined.
		if err := r.x.Fill(float32(r.Rank() + 1)); err != nil {
			return err
		}
		next, done, err := r.Shrink(ctx)
		if err != nil {
			return err
		}
		defer next.Close()
		if done != 1 || next.Size() != 2 || next.Rank() != r.Rank()/2 {
			return fmt.Errorf("rank %d of %d after operation %d", next.Rank(), next.Size(), done)
		}
		if err := next.AllReduce(ctx, gpu.Of(r.x), tutti.Sum); err != nil {
			return err
		}
		return r.holds(4)
	}))
}
