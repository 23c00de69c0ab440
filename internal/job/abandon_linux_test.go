package job

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// abandon waits for the memory of groups and allocations in which the other rank does not take
// part: it never calls, its group has failed, or it has closed its group. Rank 0 would pass the
// memory, rank 1 would fetch it.
func abandon(ctx context.Context, e engine.Engine) error {
	seq := uint64(0)
	meet := func() error {
		seq++
		return e.Run(ctx, seq, []engine.Call{{Verb: engine.Barrier}})
	}
	round := func(i int) error {
		seq++
		sub, err := e.Sub(ctx, seq, []int{0, 1})
		if err != nil {
			return err
		}
		early := i%2 == 1 // the other rank closes the group before
		waits := e.Rank() == i/4%2
		if early && !waits {
			err = sub.Close()
		}
		if err := errors.Join(err, meet()); err != nil {
			return err
		}
		if waits {
			soon, cancel := context.WithTimeout(ctx, time.Millisecond)
			if i%4 < 2 {
				_, err = sub.Alloc(soon, 1, 1<<20)
			} else {
				_, err = sub.Sub(soon, 1, []int{0, 1})
			}
			cancel()
			if err == nil {
				return errors.New("it was not given up")
			}
		}
		if err := meet(); err != nil {
			return err
		}
		return sub.Close() // a second Close changes nothing
	}
	const warm, rounds = 8, 40
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

// TestAbandon abandons groups and allocations. No process keeps descriptors, mappings or goroutines
// of them.
func TestAbandon(t *testing.T) { start(t, 2, "abandon").wait(t) }
