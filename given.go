package tutti

import (
	"slices"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

const (
	// maxGiven is how many operations a device is given before the first of them is
	// done.
	maxGiven = 256
	// refill is how many operations fewer than that there are when it is given more:
	// the goroutine that does so is not woken for each.
	refill = 64
)

// A given is an operation that the device has. Host memory's operations are over
// one before the next begins; a device has a queue of its own, and would stand
// still while the host finds out that one is done and brings the next.
type given struct {
	t *task
	p engine.Pending // nil: it is over when the next one is
}

// toDevice reports whether a task is the device's, at least in part.
func (c *Comm) toDevice(t *task) bool {
	if t.on != nil || t.sign != 0 {
		return true
	}
	if c.device == nil {
		return false
	}
	for i := range t.calls {
		if t.calls[i].OnDevice() {
			return true
		}
	}
	return false
}

// give gives a task to the device, with those after it that are joined with it: nobody
// need know of them before. Another goroutine waits until they are done. c.mu is held,
// but not while the other ranks are waited for.
func (c *Comm) give(t *task) {
	c.giving = true
	c.watchDriver()
	agreed := c.device.Agreed()
	c.signs = c.signs[:0]
	if agreed == 0 {
		for _, w := range c.queue.waiting() {
			if w.sign == 0 || len(c.signs) == engine.SignsAhead {
				break
			}
			c.signs = append(c.signs, w.sign)
		}
	}
	c.gifts, c.launches = c.gifts[:0], c.launches[:0]
	for join := true; join; {
		c.log.BeginQueued(t.seq, t.calls, t.queued)
		next := c.queue.first()
		join = c.joins(t, next, c.joined+len(c.gifts))
		c.gifts = append(c.gifts, t)
		c.launches = append(c.launches, engine.Launch{Ctx: t.ctx, Seq: t.seq, Calls: t.calls, Stream: t.on, Join: join})
		if len(c.gifts) >= agreed {
			break
		}
		if join {
			t = c.queue.pop()
		}
	}
	c.mu.Unlock()
	c.device.Launch(c.launches, c.signs)
	c.mu.Lock()
	c.giving = false
	if t.on != nil {
		c.launched.Store(t.seq)
		c.lot.Wake(nil)
	}
	for i, t := range c.gifts {
		p := c.launches[i].Pending
		c.given = append(c.given, given{t, p})
		if c.joined++; p != nil {
			c.joined = 0
		}
	}
	clear(c.gifts)
	clear(c.launches)
	switch {
	case !c.collecting:
		c.collecting = true
		c.lot.Go(c.collector)
	case c.queue.empty() && t.on == nil || slices.Contains(c.wanted, t.seq):
		c.bell.Signal()
		fallthrough
	default:
		c.handed.Signal()
	}
}

// To have the device tell that an operation is over costs a part of what the smallest
// take. So it tells of several together: of as many as take joinFor, and of far fewer
// than it is given at once, because room is made only by what it tells.
const (
	joinFor  = 400 * time.Microsecond
	joinMost = refill / 2
)

// joins reports whether it is enough to know of a task that it is over when the next
// one is: they look alike, nobody waits for this one, and one context ends both. So many
// before it are joined with it.
func (c *Comm) joins(t, next *task, before int) bool {
	if next == nil || t.sign == 0 || next.sign != t.sign || t.on != nil || next.on != nil ||
		t.ctx.Done() != next.ctx.Done() || slices.Contains(c.wanted, t.seq) {
		return false
	}
	each, together := c.tempo(t.sign), before+2
	return each > 0 && together <= joinMost && time.Duration(together)*each <= joinFor
}

// collect waits for the operations that the device has, in their order, until it
// has none and is given none.
func (c *Comm) collect() {
	m := meter{keen: c.device.Keen()}
	fresh := wait.Poller{Wakeup: &c.bell, SpinAllowed: m.keen}
	pace, look := fresh, false
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.given) > 0 || c.giving {
		n := c.marked()
		if n > 0 {
			sign := c.given[0].t.sign
			if c.ended(n, look) {
				c.keepTempo(sign, m.count(n, sign, time.Now()))
				pace, look = fresh, false
				continue
			}
			m.asked = true
		}
		if n == 0 {
			m.began(time.Time{})
		}
		if n == 0 && look {
			// To be woken for the next one takes longer than to stay, for a while.
			c.handed.Wait()
			pace, look = fresh, false
			continue
		}
		if n > 0 && m.since.IsZero() {
			m.began(time.Now())
			pace = fresh
		}
		nap := c.nap(&m)
		if nap == 0 && pace.MinPause > 0 {
			pace = fresh // from now on, the questions come one after the other
		}
		pace.MinPause, pace.Seen = nap, c.bell.Count()
		c.mu.Unlock()
		look = pace.Pause()
		c.mu.Lock()
	}
	c.collecting = false
}

// marked is how many operations the device tells together that they are over, the
// first that it has; zero: they are not all launched. c.mu is held.
func (c *Comm) marked() int {
	for i := range c.given {
		if c.given[i].p != nil {
			return i + 1
		}
	}
	return 0
}

// ended reports whether the first n operations are over, and if so, ends them and tells
// those who wait. c.mu is held, but not while the device is asked.
func (c *Comm) ended(n int, look bool) bool {
	c.ending = append(c.ending[:0], c.given[:n]...)
	list, p := c.ending, c.given[n-1].p
	c.mu.Unlock()
	for i := range list {
		if t := list[i].t; t.stop != nil {
			t.stop()
			t.stop = nil
		}
	}
	over := p.Over(look)
	var err error
	if over {
		err = p.Settle()
	}
	c.mu.Lock()
	if !over {
		return false
	}
	for i := range list {
		t := list[i].t
		c.log.EndEarlier(t.seq, err != nil)
		if err != nil {
			c.noteFailed(t.seq)
		} else {
			c.finished.Store(t.seq)
			c.noteSuccess(t.sign)
		}
		c.putTask(t)
	}
	clear(list)
	left := copy(c.given, c.given[n:])
	clear(c.given[left:])
	c.given = c.given[:left]
	if left == 0 && !c.giving && c.failedAt.Load() != 0 {
		// Not before: those behind it have failed too, but their memory may have
		// been in use until now.
		c.dead.Store(true)
	}
	if left <= c.low {
		c.progress.Broadcast()
	}
	c.lot.Wake(nil)
	return true
}
