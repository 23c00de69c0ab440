package wait

import (
	"runtime"
	"time"
)

const (
	// eager is how long the questions come one after the other: to fall asleep and
	// to wake takes a part of it.
	noSleepFor = 200 * time.Microsecond
	// longest is the longest pause between two questions.
	maxPause = time.Millisecond
	// others is how long other goroutines may be kept waiting for the processor. To
	// let them have it wakes a thread that looks for some, on a processor that the
	// device's own threads may need.
	yieldEvery = 50 * time.Microsecond
	// lookEvery is how often there is time for more than the question.
	checkEvery = time.Millisecond
)

// A Pace is for those who wait for what can only be asked for again and again,
// such as a device. The zero Pace is ready; it is for one wait of one goroutine.
//
// The runtime's timers are a millisecond late when all is quiet, which is
// twenty times what a small operation takes: pauses are the kernel's.
type Poller struct {
	// Nap is how late the answer may be, if it may: it is the least pause before a
	// question.
	MinPause time.Duration
	// Keen says that there are processors enough: it is not given away while questions
	// come one after the other, because it may come back late.
	SpinAllowed bool
	// Bell ends a pause, if it has been rung more often than Rings. Nil: nothing does.
	Wakeup *Wakeup
	Seen   uint64

	began, yielded, checked time.Time
}

// Pause waits before the next question: first only for others on this processor,
// later for a small part of the time that has passed. It reports, every millisecond,
// that there is time for more than the question itself.
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
