package wait

import (
	"sync/atomic"
	"time"
)

// A FirstWait records when an operation first had to wait for more than a moment. The waiter
// records it when it reads the clock anyway. It is safe for concurrent use.
type FirstWait struct {
	Base  time.Time // the reference time; set before first use
	nanos atomic.Int64
}

// record stores now unless a time is stored.
func (m *FirstWait) record(now time.Time) {
	m.nanos.CompareAndSwap(0, max(int64(now.Sub(m.Base)), 1))
}

// Waits reports whether a time is stored.
func (m *FirstWait) Waits() bool { return m.nanos.Load() != 0 }

// Value returns the stored time in nanoseconds after Base, or zero.
func (m *FirstWait) Value() int64 { return m.nanos.Load() }

// Take returns Value and resets it for the next operation.
func (m *FirstWait) Take() int64 {
	v := m.nanos.Load()
	if v != 0 {
		m.nanos.Store(0)
	}
	return v
}
