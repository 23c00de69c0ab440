package engine

import (
	"sync"
	"sync/atomic"
)

// A Cause holds the first failure of a group. The zero Cause holds none: the group
// has not failed. It is safe for concurrent use and must not be copied.
type Cause struct {
	first  atomic.Pointer[Failure]
	report sync.Once // for onFail
}

// Load returns the failure, nil if there was none.
func (c *Cause) Load() *Failure { return c.first.Load() }

// Take ends the group with f, unless it has failed before, and returns the first
// failure. If f.Told is false, Take first passes f to onFail, which may be nil. If
// onFail knows of an earlier failure, it calls Take with that one, which then
// becomes the first. stop ends all waits of the group. Take has called stop at least
// once when it returns. Several goroutines may call stop at the same time.
func (c *Cause) Take(f *Failure, onFail func(*Failure), stop func()) *Failure {
	if !f.Told && onFail != nil {
		c.report.Do(func() {
			if c.first.Load() == nil {
				onFail(f)
			}
			c.first.CompareAndSwap(nil, f)
			stop()
		})
	}
	c.first.CompareAndSwap(nil, f)
	stop()
	return c.first.Load()
}
