package engine

import (
	"context"
	"errors"
	"time"

	"github.com/tutti-go/tutti/internal/wait"
)

// Interrupt makes f the failure of an operation that err has ended: wait.ErrTimeout, because limit
// has passed, or else its context's. The rest of f says what the operation waited for. It belongs to
// the making of f.
func (f *Failure) Interrupt(ctx context.Context, err error, limit time.Duration) {
	switch {
	case errors.Is(err, wait.ErrTimeout):
		f.Kind, f.Err, f.Event, f.Limit = ErrTimeout, nil, LimitPassed, limit
	case errors.Is(err, context.DeadlineExceeded):
		f.Kind, f.Err, f.Event = ErrTimeout, err, DeadlinePassed
	default:
		f.Kind, f.Err, f.Event = ErrAborted, err, Cancelled
		if cause := context.Cause(ctx); cause != nil {
			f.Text = cause.Error()
		}
	}
}
