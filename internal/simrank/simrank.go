// Package simrank ties a context to the simulated rank to which it belongs. It keeps the simulator out of
// programs that may run in it.
package simrank

import (
	"context"
	"time"
)

// A Rank is a simulated rank, as seen by its program.
type Rank interface {
	// Now returns the virtual time.
	Now() time.Time
	// Sleep waits for a virtual duration, or until ctx ends.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout is context.WithTimeout in virtual time.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Go runs f concurrently with its caller. wait returns when f has returned.
	Go(f func()) (wait func())
}

type key struct{}

// With returns a context that belongs to a simulated rank.
func With(ctx context.Context, r Rank) context.Context { return context.WithValue(ctx, key{}, r) }

// Of returns the simulated rank to which a context belongs, or nil.
func Of(ctx context.Context) Rank {
	r, _ := ctx.Value(key{}).(Rank)
	return r
}
