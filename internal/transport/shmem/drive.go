package shmem

import (
	"time"

	"github.com/tutti-go/tutti/internal/wait"
)

const (
	// pollsPerSweep is the number of polls of active peers between two polls of all peers. All peers
	// are also polled after each sleep.
	pollsPerSweep = 4096
	// lockedPolls is the number of polls before Lane.mu is released for the first time: about the
	// time in which a peer answers.
	lockedPolls = 64
)

// A driverCond is true when the driver's message has changed. Then Lane.mu is locked.
type driverCond struct {
	lane   *Lane
	active []*peer // the peers to poll
	kick   uint64  // Lane.kick
	events uint64  // Lane.events
	polls  int
	held   bool // Ready has returned true
	words  wait.Words
}

// drive polls as the driver until x has changed. l.mu is held.
func (l *Lane) drive(w *wait.Waiter, x *state) error {
	l.driver = x
	if l.vacant.Load() {
		l.vacant.Store(false)
	}
	l.cond.held = false
	l.cond.update()
	l.poll(x)
	for i := 0; i < lockedPolls && l.standing == 0 && !l.cond.changed(); i++ {
		l.showChanges()
		if l.cond.hasNews() {
			l.poll(x)
		}
	}
	var err error
	if !l.cond.changed() {
		l.cond.update()
		l.unlock()
		if err = w.ForPeers(&l.cond); err != nil {
			l.mu.Lock()
		}
	}
	l.driver = nil
	if l.standing > 0 {
		l.vacant.Store(true)
		l.lot.WakeGoroutines()
	}
	return err
}

// update makes c poll for the messages that are open now.
func (c *driverCond) update() {
	l := c.lane
	l.grown = false
	c.active = l.active
	if l.anyOpen > 0 {
		c.active = l.others
	}
	for _, p := range c.active {
		p.watch()
	}
	c.kick, c.events = l.kick.Load(), l.events.Load()
}

// changed reports whether the driver must return.
func (c *driverCond) changed() bool {
	return c.lane.driver.changed || c.events != c.lane.events.Load()
}

// Ready polls. It returns true with l.mu locked.
func (c *driverCond) Ready() bool {
	if c.held {
		return true
	}
	if c.polls++; c.polls%pollsPerSweep != 0 && !c.hasNews() {
		return false
	}
	l := c.lane
	l.mu.Lock()
	if c.polls%pollsPerSweep == 0 {
		l.sweep()
	}
	l.poll(l.driver)
	if c.held = c.changed(); c.held {
		return true
	}
	c.update()
	l.unlock()
	return false
}

// hasNews reports whether there is something to process.
func (c *driverCond) hasNews() bool {
	for _, p := range c.active {
		if p.hasNews() {
			return true
		}
	}
	return c.kick != c.lane.kick.Load()
}

// Sleep sleeps until there may be something to process.
func (c *driverCond) Sleep(limit time.Duration) {
	l := c.lane
	// A peer stores, and then loads the word sleeping. The driver stores sleeping and then looks at
	// the peer's memory. At least one of the two sees the other's store.
	s := sleeping(l.part)
	s.Store(1)
	c.words.Reset()
	c.words.Add(&l.kick)
	for _, p := range c.active {
		c.words.Add(&p.in.bell)
	}
	if !c.hasNews() {
		c.words.Sleep(limit)
		c.polls = -1 // the next poll is a sweep
	}
	s.Store(0)
}

// poll processes what the active peers have written, until message x has changed. It takes one
// record of each peer in turn.
func (l *Lane) poll(x *state) {
	peers := l.active
	if l.anyOpen > 0 {
		peers = l.others
	}
	n := len(peers)
	for more := true; more; {
		more = false
		if l.turn >= n {
			l.turn = 0
		}
		at := l.turn
		for range n {
			p := peers[at]
			if at++; at == n {
				at = 0
			}
			if p.poll() {
				more, l.turn = true, at
			}
			if x.changed {
				p.drain()
				return
			}
		}
	}
}

// sweep polls the peers without open messages, which may have sent notes, and looks for peers that
// have left.
func (l *Lane) sweep() {
	for _, p := range l.others {
		p.watchHeader, p.watchRecords = true, true
		for p.open == 0 && p.poll() {
		}
		if p.open > 0 || l.anyOpen > 0 {
			p.checkLeft()
		}
	}
	keep := l.active[:0]
	for _, p := range l.active {
		if p.open > 0 {
			keep = append(keep, p)
		} else {
			p.listed = false
		}
	}
	clear(l.active[len(keep):])
	l.active = keep
}

// standBy waits until x has changed or a driver is needed. l.mu is held, and released meanwhile.
func (l *Lane) standBy(w *wait.Waiter, x *state) error {
	x.standing = true
	l.standing++
	x.woken.Store(false)
	x.cond.seen = l.events.Load()
	l.unlock()
	err := w.For(&x.cond)
	l.mu.Lock()
	x.standing = false
	l.standing--
	return err
}
