package enginetest

import (
	"context"
	"errors"
	"sync"
	"time"
)

// brief is the deadline of operations that are known never to end.
const brief = 20 * time.Millisecond

// errOnPurpose is why a test cancels a context.
var errOnPurpose = errors.New("cancelled on purpose")

// A late context is on its way to its end from the moment an engine first looks
// at it, and not over at that moment: so the operation has begun.
type late struct {
	context.Context // the parent

	end  func(parent context.Context) context.Context
	once sync.Once
	own  context.Context
}

// lateDeadline returns a context with a brief deadline.
func lateDeadline(ctx context.Context) context.Context {
	return &late{Context: ctx, end: func(parent context.Context) context.Context {
		own, cancel := context.WithTimeout(parent, brief)
		context.AfterFunc(own, cancel)
		return own
	}}
}

// lateCancel returns a context that is about to be cancelled.
func lateCancel(ctx context.Context) context.Context {
	return &late{Context: ctx, end: func(parent context.Context) context.Context {
		own, cancel := context.WithCancelCause(parent)
		go cancel(errOnPurpose)
		return own
	}}
}

func (c *late) begin() (first bool) {
	c.once.Do(func() {
		first = true
		c.own = c.end(c.Context)
	})
	return first
}

func (c *late) Err() error {
	if c.begin() {
		return nil
	}
	return c.own.Err()
}

func (c *late) Done() <-chan struct{} {
	c.begin()
	return c.own.Done()
}

func (c *late) Value(key any) any {
	c.begin()
	return c.own.Value(key)
}
