package clock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/clock"
	"github.com/tutti-go/tutti/tuttitest"
)

// program checks the functions: a deadline of a minute ends an hour's sleep, while another task sleeps for
// half a minute.
func program(ctx context.Context) error {
	began := clock.Now(ctx)
	var other error
	wait := clock.Go(ctx, func() { other = clock.Sleep(ctx, 30*time.Second) })
	short, cancel := clock.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := clock.Sleep(short, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("Sleep with a deadline: %w", err)
	}
	if wait(); other != nil {
		return other
	}
	if took := clock.Now(ctx).Sub(began); took != time.Minute {
		return fmt.Errorf("it took %v", took)
	}
	return nil
}

func TestReal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := program(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestSimulated(t *testing.T) {
	res := tuttitest.Run(t, tuttitest.Options{Ranks: 2}, func(ctx context.Context, _ *tutti.Comm) error { return program(ctx) })
	if err := errors.Join(res.Errs...); err != nil || res.Elapsed < time.Minute {
		t.Errorf("%v of virtual time: %v", res.Elapsed, err)
	}
}

// Example retries every ten seconds. In the simulator this takes no time.
func Example() {
	opt := tuttitest.Options{Ranks: 1}
	_, err := tuttitest.Simulate(opt, func(ctx context.Context, _ *tutti.Comm) error {
		began := clock.Now(ctx)
		for try := 1; try < 4; try++ {
			if err := clock.Sleep(ctx, 10*time.Second); err != nil {
				return err
			}
		}
		fmt.Println("three tries in", clock.Now(ctx).Sub(began))
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: three tries in 30s
}
