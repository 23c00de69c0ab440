package tutti_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/tutti-go/tutti"
)

// begun waits until a rank has begun its first operation.
func begun(c *tutti.Comm) {
	for len(c.Stats().Ops) == 0 {
		runtime.Gosched()
	}
}

// TestShrinkBesideOperation has rank 1 shrink while another of its goroutines is in
// an operation, which that ends, and which rank 0 has completed: it does not count
// as done.
func TestShrinkBesideOperation(t *testing.T) {
	for range 20 {
		comms := local(t, 3, tutti.Config{})
		completed := make(chan struct{})
		all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
			reduce := func() error {
				return c.Reduce(ctx, tutti.Of([]int{0}), tutti.Of([]int{1}), tutti.Sum, 1)
			}
			switch c.Rank() {
			case 0:
				if err := reduce(); err != nil {
					return err
				}
				close(completed)
				<-c.Done()
			case 1:
				failed := make(chan error, 1)
				go func() { failed <- reduce() }()
				begun(c)
				<-completed
				defer func() {
					if err := <-failed; !errors.Is(err, tutti.ErrAborted) {
						t.Errorf("the operation: %v", err)
					}
				}()
			case 2:
				<-c.Done()
				return c.Close()
			}
			next, done, err := c.Shrink(ctx)
			if err != nil {
				return err
			}
			if done != 0 {
				t.Errorf("rank %d: %d operations were done", c.Rank(), done)
			}
			return next.Close()
		})
	}
}

// TestAbortWhileClosing has a Close wait for an operation that no other rank joins:
// Abort ends both.
func TestAbortWhileClosing(t *testing.T) {
	c := local(t, 2, tutti.Config{Timeout: -1})[0]
	w, err := c.Batch().Barrier().Start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	for !errors.Is(c.Err(), tutti.ErrClosed) {
		runtime.Gosched()
	}
	c.Abort(nil)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := w.Wait(ctx); !errors.Is(err, tutti.ErrAborted) {
		t.Fatalf("the operation: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
