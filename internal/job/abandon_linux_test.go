package job

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tutti-go/tutti/internal/engine"
)

// abandon has rank 0 pass memory for groups and allocations that rank 1 never takes: because
// it never asks, because its group has failed, or because it has closed its group.
func abandon(ctx context.Context, e engine.Engine) error {
	seq := uint64(0)
	meet := func() error {
		seq++
		return e.Run(ctx, seq, []engine.Call{{Verb: engine.Barrier}})
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	round := func(i int) error {
		seq++
		sub, err := e.Sub(ctx, seq, []int{0, 1})
		if err != nil {
			return err
		}
		early := i%2 == 1 // rank 1 closes the group before the memory is passed
		if early && e.Rank() == 1 {
			err = sub.Close()
		}
		if err := errors.Join(err, meet()); err != nil {
			return err
		}
		if e.Rank() == 0 {
			if i%4 < 2 {
				_, err = sub.Alloc(ended, 1, 1<<20)
			} else {
				_, err = sub.Sub(ended, 1, []int{0, 1})
			}
			if err == nil {
				return errors.New("it was not given up")
			}
		}
		if err := meet(); err != nil {
			return err
		}
		return sub.Close() // once more on rank 1, which changes nothing
	}
	const warm, rounds = 4, 40
	var before usage
	for i := range warm + rounds {
		if i == warm {
			var err error
			if before, err = measure(); err != nil {
				return err
			}
		}
		if err := round(i); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	if err := meet(); err != nil {
		return err
	}
	_, err := settle(before, 4<<20)
	return err
}

// TestAbandon gives up groups and allocations. No process keeps descriptors, mappings or
// goroutines of them.
func TestAbandon(t *testing.T) { start(t, 2, "abandon").wait(t) }
