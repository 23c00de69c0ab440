package wait

import (
	"sync/atomic"
	"time"
)

// A Mark says since when an operation has had to wait for more than a moment.
// It is written where the clock is read anyway, so it costs nothing. Waiters
// and readers may use it at the same time.
type FirstWait struct {
	Base  time.Time // what it counts from; set before it is used
	nanos atomic.Int64
}

// note notes a first look at the clock, unless there was one.
func (m *FirstWait) record(now time.Time) {
	m.nanos.CompareAndSwap(0, max(int64(now.Sub(m.Base)), 1))
}

// Waits reports whether something was noted.
func (m *FirstWait) Waits() bool { return m.nanos.Load() != 0 }

// Value returns what was noted, in nanoseconds; zero: nothing.
func (m *FirstWait) Value() int64 { return m.nanos.Load() }

// Take returns it and begins anew, for the next operation.
func (m *FirstWait) Take() int64 {
	v := m.nanos.Load()
	if v != 0 {
		m.nanos.Store(0)
	}
	return v
}
