package wait

import (
	"sync/atomic"
	"time"
)

// A Bell ends the pauses of a Pace, which is one goroutine's; any may ring. The zero Bell
// is ready, and must not be copied.
type Wakeup struct {
	count    atomic.Uint64
	sleeping atomic.Bool
}

// Ring ends a pause that is under way, and one that begins without knowing of it.
func (b *Wakeup) Signal() {
	b.count.Add(1)
	if b.sleeping.Load() {
		futexWake(&b.count)
	}
}

// Rings is how often it has been rung.
func (b *Wakeup) Count() uint64 { return b.count.Load() }

// nap sleeps until the bell is rung more often than is known, or for a time.
func (b *Wakeup) sleep(d time.Duration, seen uint64) {
	// Who rings counts, then looks for a sleeper; the sleeper says so, then the kernel
	// looks at the count.
	b.sleeping.Store(true)
	sleepOn(&b.count, uint32(seen), d)
	b.sleeping.Store(false)
}
