package wait

import (
	"runtime"
	"time"
)

const (
	// noSleepFor is how long a wait polls without sleeping. A sleep and its wake-up take a part of
	// it.
	noSleepFor = 200 * time.Microsecond
	// maxPause bounds the pause between two polls.
	maxPause = time.Millisecond
	// yieldEvery is how often other goroutines get this CPU. Yielding more often wakes a runtime
	// thread on a CPU that the device's own threads may need.
	yieldEvery = 50 * time.Microsecond
	// checkEvery is the interval at which Pause reports that checks are due.
	checkEvery = time.Millisecond
)

// A Poller paces the polls of a goroutine that waits for an event without a notification, such as
// the completion of a device operation. The zero Poller is ready. It is for one wait of one
// goroutine.
//
// Its pauses use the kernel's timers: those of the Go runtime can be a millisecond late, many times
// the duration of a small operation.
type Poller struct {
	// MinPause is the minimum pause before a poll. The event may be detected that much later.
	MinPause time.Duration
	// SpinAllowed disables yields between polls, after which the goroutine might run only much later.
	// The caller sets it if there are enough CPUs.
	SpinAllowed bool
	// Wakeup ends a pause if its Count differs from Seen. Nil: no early end.
	Wakeup *Wakeup
	Seen   uint64

	began, yielded, checked time.Time
}

// Pause waits before the next poll. For noSleepFor it only yields the CPU. Later it sleeps for a 64th
// of the time waited so far, at most maxPause. It reports every checkEvery that there is time for checks other than the poll.
func (p *Poller) Pause() (checkDue bool) {
	now := time.Now()
	if p.began.IsZero() {
		p.began, p.yielded, p.checked = now, now, now
	}
	if now.Sub(p.yielded) > yieldEvery {
		p.yielded = now
		runtime.Gosched()
	}
	if checkDue = now.Sub(p.checked) > checkEvery; checkDue {
		p.checked = now
	}
	waited := now.Sub(p.began)
	if waited < noSleepFor && p.MinPause == 0 {
		if !p.SpinAllowed {
			yield()
		}
		return checkDue
	}
	d := min(max(waited/64, p.MinPause), maxPause)
	if p.Wakeup != nil {
		p.Wakeup.sleep(d, p.Seen)
	} else {
		sleepFor(d)
	}
	return checkDue
}
