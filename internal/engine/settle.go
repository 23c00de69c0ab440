package engine

import "context"

// A Settler is an engine whose Run may return before any other rank has made the call, as on the
// root of a Broadcast. An engine that contains other engines forwards the call with Settle.
type Settler interface {
	// Settle waits until the other ranks have made the calls of this rank's Runs, as far as
	// Run has not waited for that, or until ctx ends or the group fails. If a rank has made
	// another call or has left before it, the group fails. The owner calls Settle before Close
	// and calls neither Run nor Settle concurrently.
	Settle(ctx context.Context)
}

// Settle calls Settle of e, if e is a Settler.
func Settle(ctx context.Context, e Engine) {
	if s, ok := e.(Settler); ok {
		s.Settle(ctx)
	}
}

// AwaitsNoRank reports whether a rank's part of the call may be complete before any other rank has
// made the call: the root only sends, the others only send to the root, or the rank is the first of a prefix.
func (c *Call) AwaitsNoRank(rank int) bool {
	v := c.Verb.Info()
	if v.Prefix != NoPrefix {
		return rank == 0
	}
	return v.Rooted && (rank == c.Root) == (v.Source.Ranks == RootOnly)
}
