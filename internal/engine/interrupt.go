package engine

import (
	"context"
	"errors"
	"time"

	"github.com/tutti-go/tutti/internal/wait"
)

// DefaultTimeout is the default of Config.Timeout of packages tutti and torch, and of a simulation.
const DefaultTimeout = 5 * time.Minute

// Interrupt sets the kind, the event, Err, Limit and Text of f, the failure of an operation that err has
// ended. err is wait.ErrTimeout if limit has passed, or the error of ctx. The caller sets where f
// began and what it waited for. It must not have published f yet.
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
