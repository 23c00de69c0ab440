// Package clock has functions of packages time and context, and the go statement, for the code of ranks. On
// a simulated rank of package tuttitest the functions use the rank's virtual time; elsewhere they are the
// standard library's. A program that uses them runs unchanged as a job and in the simulator. Each function takes a
// context that is derived from the one of the rank's function.
package clock

import (
	"context"
	"time"

	"github.com/tutti-go/tutti/internal/simrank"
)

// Now returns the current time.
func Now(ctx context.Context) time.Time {
	if r := simrank.Of(ctx); r != nil {
		return r.Now()
	}
	return time.Now()
}

// Sleep waits for a duration. It returns ctx's error if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	if r := simrank.Of(ctx); r != nil {
		return r.Sleep(ctx, d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// WithTimeout is context.WithTimeout.
func WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if r := simrank.Of(ctx); r != nil {
		return r.WithTimeout(ctx, d)
	}
	return context.WithTimeout(ctx, d)
}

// Go runs f concurrently with its caller. The returned function waits until f has returned.
func Go(ctx context.Context, f func()) (wait func()) {
	if r := simrank.Of(ctx); r != nil {
		return r.Go(f)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return func() { <-done }
}
