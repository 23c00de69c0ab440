package nccl

// Only one call uses a communicator at a time. A call that finds it open and unused, with
// no other call waiting, takes it with one atomic operation and gives it back with
// another: the fast path. All other code locks mu with lock, which shuts the fast path;
// unlock opens it again when the communicator is open, unused and not waited for.
const (
	fastTaken uint32 = 1 << iota // a call on the fast path has taken the communicator
	fastShut                     // the fast path is shut
)

// lock locks mu and shuts the fast path. A call that is on it sets busy.
func (c *Comm) lock() {
	c.mu.Lock()
	if c.turn.Or(fastShut)&fastTaken != 0 {
		c.busy = true
	}
}

// unlock unlocks mu, and opens the fast path if it can be used.
func (c *Comm) unlock() {
	if c.state == open && !c.busy && c.waiting == 0 {
		c.turn.Store(0)
	}
	c.mu.Unlock()
}

// wait waits for a change of the fields that mu guards. The caller holds mu.
func (c *Comm) wait() {
	c.waiting++
	c.changed.Wait()
	c.waiting--
}

// take waits until no call uses the communicator, and takes it. It fails if the state is
// not one of wanted. A group g keeps it until the group's end, and its calls share it.
func (c *Comm) take(what string, g *group, wanted state) error {
	if err := c.checkNil(); err != nil {
		return err
	}
	c.lock()
	defer c.unlock()
	for c.state&wanted != 0 && c.busy && (g == nil || c.owner != g) {
		c.wait()
	}
	if c.state&wanted == 0 {
		return c.stateError(what)
	}
	c.busy, c.owner = true, g
	return nil
}

// give gives back what take has taken.
func (c *Comm) give() {
	c.lock()
	c.turn.Store(fastShut)
	c.busy, c.owner, c.ending = false, nil, false
	c.changed.Broadcast()
	c.unlock()
}

// takeFast is take on the fast path. It does not wait.
func (c *Comm) takeFast() bool { return c.turn.CompareAndSwap(0, fastTaken) }

// giveFast gives back what takeFast has taken.
func (c *Comm) giveFast() {
	if !c.turn.CompareAndSwap(fastTaken, 0) {
		c.give() // lock has shut the fast path meanwhile
	}
}
