package wait

import (
	"sync/atomic"
	"time"
)

// A Mark says since when an operation has had to wait for more than a moment.
// It is written where the clock is read anyway, so it costs nothing. Waiters
// and readers may use it at the same time.
type Mark struct {
	Since time.Time // what it counts from; set before it is used
	at    atomic.Int64
}

// note notes a first look at the clock, unless there was one.
func (m *Mark) note(now time.Time) {
	m.at.CompareAndSwap(0, max(int64(now.Sub(m.Since)), 1))
}

// Waits reports whether something was noted.
func (m *Mark) Waits() bool { return m.at.Load() != 0 }

// Value returns what was noted, in nanoseconds; zero: nothing.
func (m *Mark) Value() int64 { return m.at.Load() }

// Take returns it and begins anew, for the next operation.
func (m *Mark) Take() int64 {
	v := m.at.Load()
	if v != 0 {
		m.at.Store(0)
	}
	return v
}
