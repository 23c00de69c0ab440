package tutti

import (
	"math"
	"slices"
	"time"
)

// Who waits for operations of the device sleeps most of the time: questions cost
// processors that the device's own threads need, with many ranks on a machine dearly.
// How long nothing can have happened is told by what operations took that look alike.

const (
	// shortNap is the least pause between two questions, unless an operation is about to
	// be over that somebody waits for.
	shortNap = 20 * time.Microsecond
	// soon is when one is about to be over, if there are processors enough.
	soon = 200 * time.Microsecond
	// waitNap is the longest pause between two questions while somebody waits: what
	// operations took last is not what they take.
	waitNap = 100 * time.Microsecond
	// longNap is the same while nobody does.
	longNap = 500 * time.Microsecond
)

// A tempo is how long operations took last, each, that have a sign.
type tempo struct {
	sign uint64
	each time.Duration
}

// tempo returns it; zero: it is not known. c.mu is held.
func (c *Comm) tempo(sign uint64) time.Duration {
	if m := c.tempos[sign%uint64(len(c.tempos))]; m.sign == sign {
		return m.each
	}
	return 0
}

// keepTempo remembers it, if it is known. c.mu is held.
func (c *Comm) keepTempo(sign uint64, each time.Duration) {
	if each > 0 && sign != 0 {
		c.tempos[sign%uint64(len(c.tempos))] = tempo{sign, each}
	}
}

// want notes that it is waited for that an operation is over. c.mu is held.
func (c *Comm) want(seq uint64) {
	if c.device != nil {
		c.wanted = append(c.wanted, seq)
		c.bell.Signal()
	}
}

// unwant ends what want began. c.mu is held.
func (c *Comm) unwant(seq uint64) {
	if at := slices.Index(c.wanted, seq); at >= 0 {
		c.wanted = slices.Delete(c.wanted, at, at+1)
	}
}

// A meter measures tempos: of operations that look alike and follow each other, what each
// takes on average, because it is not noticed at once when one is over.
type meter struct {
	keen  bool      // who asks has a processor of its own
	since time.Time // when the device began with what is not over; zero: it has nothing
	asked bool      // after that it was
	fresh bool      // nothing is over since the device had nothing
	sign  uint64    // of those that are measured
	from  time.Time // when the device began with them; zero: that is not known
	done  int       // how many are over
}

// measured is how many operations a tempo tells of, about; those before count less.
const measured = 64

// began notes when the device began to work; zero: it has nothing to do.
func (m *meter) began(now time.Time) { *m = meter{keen: m.keen, since: now, from: now, fresh: true} }

// count counts operations that look alike, and returns what each of them takes; zero: it
// is not known.
func (m *meter) count(n int, sign uint64, now time.Time) (each time.Duration) {
	if m.sign != sign && !m.fresh {
		m.from, m.done = time.Time{}, 0
		if m.asked {
			m.from = m.since // they were not over by then, but the others were
		}
	}
	m.sign, m.since, m.asked, m.fresh = sign, now, false, false
	if m.from.IsZero() {
		m.from = now
		return 0
	}
	took := now.Sub(m.from)
	if m.done += n; m.done > 2*measured {
		took, m.done = took/2, m.done/2
		m.from = now.Add(-took)
	}
	return max(took/time.Duration(m.done), 1)
}

// nap is how long to wait before the device is asked: half of the time until an operation
// can be over that somebody waits for. If that is not known or has not been launched, or
// nobody waits, the bell tells when it changes. c.mu is held.
func (c *Comm) nap(m *meter) time.Duration {
	if len(c.given) == 0 {
		return longNap
	}
	first, last := c.given[0].t, c.given[len(c.given)-1].t
	wanted := uint64(math.MaxUint64)
	for _, seq := range c.wanted {
		if seq >= first.seq {
			wanted = min(wanted, seq)
		}
	}
	if wanted > last.seq {
		return longNap
	}
	n := 0
	for n < len(c.given) && c.given[n].t.sign == first.sign && c.given[n].t.seq <= wanted {
		n++
	}
	each, about := c.tempo(first.sign), 2*shortNap
	if m.keen {
		about = soon
	}
	left := time.Duration(n)*each - time.Since(m.since)
	if left < about && c.given[n-1].t.seq == wanted && (each > 0 || n == 1) {
		return 0
	}
	return min(max(left/2, shortNap), waitNap)
}
