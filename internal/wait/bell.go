package wait

import (
	"sync/atomic"
	"time"
)

// A Bell ends the pauses of a Pace, which is one goroutine's; any may ring. The zero Bell
// is ready, and must not be copied.
type Bell struct {
	rings atomic.Uint64
	naps  atomic.Bool
}

// Ring ends a pause that is under way, and one that begins without knowing of it.
func (b *Bell) Ring() {
	b.rings.Add(1)
	if b.naps.Load() {
		futexWake(&b.rings)
	}
}

// Rings is how often it has been rung.
func (b *Bell) Rings() uint64 { return b.rings.Load() }

// nap sleeps until the bell is rung more often than is known, or for a time.
func (b *Bell) nap(d time.Duration, known uint64) {
	// Who rings counts, then looks for a sleeper; the sleeper says so, then the kernel
	// looks at the count.
	b.naps.Store(true)
	napOn(&b.rings, uint32(known), d)
	b.naps.Store(false)
}
