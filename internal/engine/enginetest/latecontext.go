package enginetest

import (
	"context"
	"errors"
	"sync"
	"time"
)

// shortDeadline is the deadline of operations that are known never to complete.
const shortDeadline = 20 * time.Millisecond

// errOnPurpose is the cause with which a test cancels a context.
var errOnPurpose = errors.New("cancelled on purpose")

// A lateContext starts to end when an engine first checks it, and has not ended at
// that moment. So the operation always begins.
type lateContext struct {
	context.Context // the parent

	end  func(parent context.Context) context.Context
	once sync.Once
	own  context.Context
}

// lateDeadline returns a context with a short deadline.
func lateDeadline(ctx context.Context) context.Context {
	return &lateContext{Context: ctx, end: func(parent context.Context) context.Context {
		own, cancel := context.WithTimeout(parent, shortDeadline)
		context.AfterFunc(own, cancel)
		return own
	}}
}

// lateCancel returns a context that is cancelled soon after its first use.
func lateCancel(ctx context.Context) context.Context {
	return &lateContext{Context: ctx, end: func(parent context.Context) context.Context {
		own, cancel := context.WithCancelCause(parent)
		go cancel(errOnPurpose)
		return own
	}}
}

func (c *lateContext) begin() (first bool) {
	c.once.Do(func() {
		first = true
		c.own = c.end(c.Context)
	})
	return first
}

func (c *lateContext) Err() error {
	if c.begin() {
		return nil
	}
	return c.own.Err()
}

func (c *lateContext) Done() <-chan struct{} {
	c.begin()
	return c.own.Done()
}

func (c *lateContext) Value(key any) any {
	c.begin()
	return c.own.Value(key)
}
