package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tutti-go/tutti/internal/wait"
)

// NotBegun is how the reason ends when a context was over before the call.
const NotBegun = "before the operation began"

// Expired is how the reason begins when a context's deadline has passed.
const Expired = "the context's deadline has passed: "

// Cancelled is how the reason begins when a context was cancelled.
func Cancelled(ctx context.Context) string {
	return fmt.Sprintf("the context was cancelled (%v): ", context.Cause(ctx))
}

// Interrupt makes f the failure of an operation that err has ended: wait.ErrTimeout,
// because its own time was over, or else its context's. Where says what it waited
// for. It belongs to the making of f.
func (f *Failure) Interrupt(ctx context.Context, err error, timeout time.Duration, where string) {
	switch {
	case errors.Is(err, wait.ErrTimeout):
		f.Kind, f.Err, f.Reason = ErrTimeout, nil, fmt.Sprintf("not done after %v: %s", timeout, where)
	case errors.Is(err, context.DeadlineExceeded):
		f.Kind, f.Err, f.Reason = ErrTimeout, err, Expired+where
	default:
		f.Kind, f.Err, f.Reason = ErrAborted, err, Cancelled(ctx)+where
	}
}
