package gpu

import (
	"math"
	"time"
)

// Polling the device costs CPU time that NCCL's own threads need, which matters with many ranks on
// one host. So the completion goroutine sleeps most of the time. It derives the pauses from the
// duration of earlier operations that look alike.

const (
	// minPollDelay is the shortest pause between two polls, unless an awaited operation is about
	// to complete.
	minPollDelay = 20 * time.Microsecond
	// spinBefore is how long before the estimated completion of an awaited operation the polls
	// follow each other without pauses, if spinning is allowed. Otherwise that time is
	// 2*minPollDelay.
	spinBefore = 200 * time.Microsecond
	// maxAwaitedDelay is the longest pause while a caller waits: the estimate may be too long.
	maxAwaitedDelay = 100 * time.Microsecond
	// maxPollDelay is the longest pause while no caller waits.
	maxPollDelay = 500 * time.Microsecond
)

// A costEstimate is the recent average duration of the operations with one signature.
type costEstimate struct {
	signature uint64
	each      time.Duration
}

// cost returns the estimated duration of an operation, or zero if it is unknown. p.mu is held.
func (p *pipeline) cost(signature uint64) time.Duration {
	if c := p.costs[signature%uint64(len(p.costs))]; c.signature == signature {
		return c.each
	}
	return 0
}

// keepCost stores an estimate unless it is zero. p.mu is held.
func (p *pipeline) keepCost(signature uint64, each time.Duration) {
	if each > 0 && signature != 0 {
		p.costs[signature%uint64(len(p.costs))] = costEstimate{signature, each}
	}
}

// A costMeter measures the average duration of consecutive operations with the same signature. It
// measures averages because the host notices a completion late.
type costMeter struct {
	spinAllowed bool      // the completion goroutine has a CPU of its own
	since       time.Time // when the device began with the first incomplete operation; zero: the device is idle
	polled      bool      // an operation was found incomplete after since
	fresh       bool      // no operation has completed since the device was idle
	signature   uint64    // of the measured operations
	from        time.Time // when the device began with the measured operations; zero: unknown
	done        int       // number of measured operations that are complete
}

// costWindow is about how many operations an average covers. Earlier ones count less.
const costWindow = 64

// start notes when the device began to work. The zero time means that the device is idle.
func (m *costMeter) start(now time.Time) {
	*m = costMeter{spinAllowed: m.spinAllowed, since: now, from: now, fresh: true}
}

// count counts n completed operations with one signature. It returns the average duration, or
// zero if that is unknown.
func (m *costMeter) count(n int, signature uint64, now time.Time) (each time.Duration) {
	if m.signature != signature && !m.fresh {
		m.from, m.done = time.Time{}, 0
		if m.polled {
			m.from = m.since // the earlier operations were complete then, and these were not
		}
	}
	m.signature, m.since, m.polled, m.fresh = signature, now, false, false
	if m.from.IsZero() {
		m.from = now
		return 0
	}
	took := now.Sub(m.from)
	if m.done += n; m.done > 2*costWindow {
		took, m.done = took/2, m.done/2
		m.from = now.Add(-took)
	}
	return max(took/time.Duration(m.done), 1)
}

// pollDelay returns the pause before the next poll: half of the time until an awaited operation can
// complete. If no caller waits, or the awaited operation has not been launched, p.wakeup ends the
// pause when that changes. p.mu is held.
func (p *pipeline) pollDelay(m *costMeter) time.Duration {
	list := p.inflight.All()
	if len(list) == 0 {
		return maxPollDelay
	}
	first, last := &list[0], &list[len(list)-1]
	awaited := uint64(math.MaxUint64)
	for _, seq := range p.awaited {
		if seq >= first.op.Seq {
			awaited = min(awaited, seq)
		}
	}
	if awaited > last.op.Seq {
		return maxPollDelay
	}
	n := 0
	for n < len(list) && list[n].signature == first.signature && list[n].op.Seq <= awaited {
		n++
	}
	each, spin := p.cost(first.signature), 2*minPollDelay
	if m.spinAllowed {
		spin = spinBefore
	}
	left := time.Duration(n)*each - time.Since(m.since)
	if left < spin && list[n-1].op.Seq == awaited && (each > 0 || n == 1) {
		return 0
	}
	return min(max(left/2, minPollDelay), maxAwaitedDelay)
}
