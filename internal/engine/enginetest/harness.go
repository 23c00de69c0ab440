package enginetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// grace is how long a case may continue after its deadline. After that the harness
// prints the goroutines of the process and abandons the case.
const grace = time.Minute

// runCase runs a case on new engines from world, one goroutine for each rank, and checks its fault and
// that no goroutine is left.
func runCase(t *testing.T, world World, opt Options, c *Case) {
	engines := world(t, c.Ranks)
	errs, first := runBodies(t, engines, opt, c)
	if first != nil {
		t.Fatal(first)
	}
	if c.Fault != nil {
		if err := c.Fault.verify(engines, errs); err != nil {
			t.Fatal(err)
		}
	}
	if c.Note != nil {
		t.Log(c.Note())
	}
	checkGoroutines(t)
}

// runBodies runs a case's body once per engine, each on a goroutine, and closes the engines. It returns the
// errors of the bodies, and the first error that the case does not expect, which also fails the rank's groups
// and cancels the context of the others. If the ranks hang, it fails the test with all stacks.
func runBodies(tb testing.TB, engines []engine.Engine, opt Options, c *Case) (errs []error, first error) {
	ctx, cancel := context.WithTimeout(context.Background(), opt.Deadline)
	defer cancel()
	errs = make([]error, len(engines))
	shared := newCache()
	var (
		once sync.Once
		wg   sync.WaitGroup
	)
	for i, e := range engines {
		r := newRank(e, shared, new(groups))
		wg.Go(func() {
			defer e.Close()
			errs[i] = c.Body(ctx, r)
			if err := errs[i]; err != nil && !c.expects(err) {
				once.Do(func() { first = fmt.Errorf("rank %d: %w", i, err) })
				r.FailGroups(err)
				cancel()
			}
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(opt.Deadline + grace):
		stacks := make([]byte, 1<<20)
		tb.Fatalf("the ranks hang:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
	return errs, first
}

// expects reports whether a case expects an error.
func (c *Case) expects(err error) bool {
	return c.Fault != nil && errors.As(err, new(*engine.Failure))
}
