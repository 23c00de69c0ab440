package tutti

import (
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// maxGiven is how many operations a device is given before the first of them is
// done.
const maxGiven = 64

// A given is an operation that the device has. Host memory's operations are over
// one before the next begins; a device has a queue of its own, and would stand
// still while the host finds out that one is done and brings the next.
type given struct {
	t *task
	p engine.Pending
}

// toDevice reports whether a task is the device's, at least in part.
func (c *Comm) toDevice(t *task) bool {
	if t.place != nil {
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

// give gives a task to the device; another goroutine waits until it is done.
// c.mu is held, but not while the other ranks are waited for.
func (c *Comm) give(t *task) {
	c.log.BeginQueued(t.seq, t.calls, t.queued)
	c.giving = true
	if !c.collecting {
		c.collecting = true
		c.lot.Go(c.collector)
	}
	next := c.signs[:0]
	for _, w := range c.queue.waiting() {
		if w.sign == 0 || len(next) == len(c.signs) {
			break
		}
		next = append(next, w.sign)
	}
	c.mu.Unlock()
	p := c.device.Launch(t.ctx, t.seq, t.calls, t.place, next)
	c.mu.Lock()
	c.giving = false
	c.given = append(c.given, given{t, p})
	c.progress.Broadcast() // the collector may wait for it
}

// refill is how many operations fewer than that there are when it is given more: the
// goroutine that does so is not woken for each.
const refill = 16

// shortNap is how late it may be noticed that an operation is over that the device
// has others after: it does not stand still, and its own threads need processors.
const shortNap = 20 * time.Microsecond

// collect waits for the operations that the device has, in their order, until it
// has none and is given none.
func (c *Comm) collect() {
	pace := wait.Pace{Nap: shortNap}
	long := false
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.given) > 0 || c.giving {
		if len(c.given) == 0 {
			// To be woken for the next one takes longer than to stay, for a while.
			if long {
				c.progress.Wait()
				continue
			}
			c.mu.Unlock()
			long = pace.Pause()
			c.mu.Lock()
			continue
		}
		pace, long = wait.Pace{Nap: shortNap}, false
		t, p, late := c.given[0].t, c.given[0].p, time.Duration(0)
		if len(c.given) > 1 {
			late = shortNap
		}
		c.mu.Unlock()
		if t.stop != nil {
			t.stop()
		}
		err := p.Settle(late)
		c.mu.Lock()
		c.log.EndEarlier(t.seq, err != nil)
		if err != nil {
			c.noteFailed(t.seq)
		} else {
			c.finished.Store(t.seq)
		}
		n := copy(c.given, c.given[1:])
		c.given[n] = given{}
		c.given = c.given[:n]
		if n == 0 && !c.giving && c.failedAt.Load() != 0 {
			// Not before: those behind it have failed too, but their memory may have
			// been in use until now.
			c.dead.Store(true)
		}
		c.putTask(t)
		if n <= c.low {
			c.progress.Broadcast()
		}
		c.lot.Wake(nil)
	}
	c.collecting = false
}
