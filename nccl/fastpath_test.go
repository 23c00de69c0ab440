package nccl

import (
	"errors"
	"sync"
	"testing"
)

// TestTurns takes a communicator from four goroutines, on the fast path and on the other. Only one has it at
// a time, and none after Close. No lock guards the counters, so the race detector reports two goroutines that
// have the communicator at once.
func TestTurns(t *testing.T) {
	c := &Comm{lib: &Library{}, state: open}
	c.changed.L = &c.mu
	var quickly, slowly int
	call := func() error {
		u, err := c.acquire("a call")
		if err != nil {
			return err
		}
		if u.fast {
			quickly++
		} else {
			slowly++
		}
		return c.finish(u, nil)
	}
	slow := func() error {
		err := c.take("a call", nil, open)
		if err == nil {
			slowly++
			c.give()
		}
		return err
	}
	// Without contention calls are on the fast path, also after a contended one.
	for n := 1; n <= 2; n++ {
		if err := errors.Join(call(), slow()); err != nil || quickly != n {
			t.Fatalf("%d of %d calls were quick: %v", quickly, n, err)
		}
	}
	var all sync.WaitGroup
	const goroutines, calls = 4, 8 * 64
	for i := range goroutines {
		all.Go(func() {
			for n := range calls {
				err := call()
				if n%8 == i {
					err = errors.Join(err, slow())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if want := 4 + goroutines*calls*9/8; quickly+slowly != want {
		t.Errorf("%d and %d calls, want %d", quickly, slowly, want)
	}
	all.Go(func() {
		var err error
		for err == nil {
			err = call()
		}
		if !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	c.lock()
	c.state = closing
	if !c.awaitIdle(closing) {
		t.Error("the state has changed")
	}
	before := quickly + slowly
	c.unlock()
	all.Wait()
	if after := quickly + slowly; after != before {
		t.Errorf("%d calls after the end", after-before)
	}
}
