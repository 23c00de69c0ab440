package wait

import (
	"sync/atomic"
	"time"
)

// A Wakeup ends the pauses of a Poller. One goroutine pauses, any goroutine may call Signal. The
// zero Wakeup is ready. It must not be copied.
type Wakeup struct {
	count    atomic.Uint64
	sleeping atomic.Bool
}

// Signal ends the current pause, and a later pause that begins with an older Count.
func (b *Wakeup) Signal() {
	b.count.Add(1)
	if b.sleeping.Load() {
		futexWake(&b.count)
	}
}

// Count returns the number of Signals.
func (b *Wakeup) Count() uint64 { return b.count.Load() }

// sleep sleeps until Count differs from seen, or for d.
func (b *Wakeup) sleep(d time.Duration, seen uint64) {
	// Signal increments the count and then loads sleeping. The sleeper stores sleeping, and then
	// the kernel compares the count. At least one of the two sees the other's store.
	b.sleeping.Store(true)
	sleepOn(&b.count, uint32(seen), d)
	b.sleeping.Store(false)
}
