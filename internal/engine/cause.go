package engine

import (
	"sync"
	"sync/atomic"
)

// A Cause is why a group has ended, once it has: the first failure. The zero
// Cause is that of a group that goes on. It is safe for concurrent use and must
// not be copied.
type Cause struct {
	first atomic.Pointer[Failure]
	tell  sync.Once
}

// Load returns the failure, nil if there was none.
func (c *Cause) Load() *Failure { return c.first.Load() }

// Take ends the group with a failure, and returns the one that came first. One
// that the other ranks do not know of is passed to onFail, if that is not nil,
// before it counts: if an earlier one is known there, that is taken first. Stop
// ends what waits; it may be called more than once, by several goroutines, and
// has been when Take returns.
func (c *Cause) Take(f *Failure, onFail func(*Failure), stop func()) *Failure {
	if !f.Told && onFail != nil {
		c.tell.Do(func() {
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
