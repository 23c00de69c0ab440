// Package netctx relates errors of package net to the context that bounded the call.
package netctx

import (
	"context"
	"errors"
	"os"
	"time"
)

// Err returns ctx.Err() as it is once the deadline of ctx has been noticed.
//
// A dial or read bounded by the deadline of ctx has a timer of its own. That timer may fire
// before the timer of ctx does: the call has failed with os.ErrDeadlineExceeded, and ctx.Err() is
// still nil. Err waits for ctx in that case, so that the caller never mistakes the end of its
// own time for a failure of the peer. It returns nil if err has another cause.
func Err(ctx context.Context, err error) error {
	end, bounded := ctx.Deadline()
	if bounded && errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(end) {
		<-ctx.Done()
	}
	return ctx.Err()
}
