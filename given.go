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
}

const (
	// collectAtOnce is how many operations are looked after before their number is
	// made known to the queue's goroutine: both need the lock, and neither should find
	// it taken. It is a part of maxGiven, so that the device does not run out of work.
	collectAtOnce = 16
	// shortNap is how late it may be noticed that an operation is over that the device
	// has others after: it does not stand still, and its own threads need processors.
	shortNap = 20 * time.Microsecond
)

// collect waits for the operations that the device has, in their order, until it
// has none and is given none.
func (c *Comm) collect() {
	var ended [collectAtOnce]uint64
	pace := wait.Pace{Nap: shortNap}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.given) > 0 || c.giving {
		if len(c.given) == 0 {
			// To come back for the next one would take longer than to stay.
			c.mu.Unlock()
			pace.Pause()
			c.mu.Lock()
			continue
		}
		pace = wait.Pace{Nap: shortNap}
		n := min(len(c.given), collectAtOnce)
		list, more := c.given[:n], len(c.given) > n
		c.mu.Unlock()
		var err error
		for i := 0; i < n && err == nil; i++ {
			err = c.await(list[i], more || i+1 < n)
			ended[i] = c.log.Now()
			if err != nil {
				n = i + 1
			}
		}
		c.mu.Lock()
		if err != nil {
			c.noteFailed(c.given[n-1].t.seq)
		}
		for i := range n {
			t := c.given[i].t
			c.log.EndEarlier(t.seq, err != nil && i+1 == n, ended[i])
			c.putTask(t)
		}
		left := copy(c.given, c.given[n:])
		clear(c.given[left:])
		c.given = c.given[:left]
		if left == 0 && !c.giving && c.failedAt.Load() != 0 {
			// Not before: those behind it have failed too, but their memory may have
			// been in use until now.
			c.dead.Store(true)
		}
		c.progress.Broadcast()
		c.lot.Wake(nil)
	}
	c.collecting = false
}

// await waits until an operation is over, after which the device may have more, and
// says so if that was well.
func (c *Comm) await(g given, more bool) error {
	if g.t.stop != nil {
		g.t.stop()
	}
	late := time.Duration(0)
	if more {
		late = shortNap
	}
	err := g.p.Settle(late)
	if err == nil {
		c.finished.Store(g.t.seq)
		c.lot.Wake(nil)
	}
	return err
}
