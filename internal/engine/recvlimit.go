package engine

import "context"

// recvLimitKey is the context key of a receive limit.
type recvLimitKey struct{}

// WithRecvLimit returns a copy of ctx with which RecvSlice takes messages of at most n elements.
// Packages of this module use it. Users have no need to bound messages of their own ranks.
func WithRecvLimit(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, recvLimitKey{}, n)
}

// RecvLimit returns the receive limit of ctx. ok is false if it has none.
func RecvLimit(ctx context.Context) (n int, ok bool) {
	n, ok = ctx.Value(recvLimitKey{}).(int)
	return n, ok
}
