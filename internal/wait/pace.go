package wait

import (
	"runtime"
	"time"
)

const (
	// eager is how long the questions come one after the other: to fall asleep and
	// to wake takes a part of it.
	eager = 200 * time.Microsecond
	// longest is the longest pause between two questions.
	longest = time.Millisecond
	// others is how long other goroutines may be kept waiting for the processor. To
	// let them have it wakes a thread that looks for some, on a processor that the
	// device's own threads may need.
	others = 50 * time.Microsecond
	// lookEvery is how often there is time for more than the question.
	lookEvery = time.Millisecond
)

// A Pace is for those who wait for what can only be asked for again and again,
// such as a device. The zero Pace is ready; it is for one wait of one goroutine.
//
// The runtime's timers are a millisecond late when all is quiet, which is
// twenty times what a small operation takes: pauses are the kernel's.
type Pace struct {
	// Nap is how late the answer may be, if it may: it is the least pause before a
	// question.
	Nap time.Duration
	// Keen says that there are processors enough: it is not given away while questions
	// come one after the other, because it may come back late.
	Keen bool
	// Bell ends a pause, if it has been rung more often than Rings. Nil: nothing does.
	Bell  *Bell
	Rings uint64

	began, gaveWay, looked time.Time
}

// Pause waits before the next question: first only for others on this processor,
// later for a small part of the time that has passed. It reports, every millisecond,
// that there is time for more than the question itself.
func (p *Pace) Pause() (look bool) {
	now := time.Now()
	if p.began.IsZero() {
		p.began, p.gaveWay, p.looked = now, now, now
	}
	if now.Sub(p.gaveWay) > others {
		p.gaveWay = now
		runtime.Gosched()
	}
	if look = now.Sub(p.looked) > lookEvery; look {
		p.looked = now
	}
	passed := now.Sub(p.began)
	if passed < eager && p.Nap == 0 {
		if !p.Keen {
			yield()
		}
		return look
	}
	d := min(max(passed/64, p.Nap), longest)
	if p.Bell != nil {
		p.Bell.nap(d, p.Rings)
	} else {
		nap(d)
	}
	return look
}
