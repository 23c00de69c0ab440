package nccl

// Calls on a communicator take turns. One that finds it open, unused and wanted by
// nobody else takes it by one atomic operation, and gives it back by another: the
// quick way. All else locks mu by lock, which shuts the quick way; unlock opens it
// again, when it may.
const (
	quick uint32 = 1 << iota // a call that came by the quick way has the communicator
	shut                     // no call comes that way
)

// lock locks mu and shuts the quick way. A call that came by it counts as busy.
func (c *Comm) lock() {
	c.mu.Lock()
	if c.turn.Or(shut)&quick != 0 {
		c.busy = true
	}
}

func (c *Comm) unlock() {
	if c.state == open && !c.busy && c.waiting == 0 {
		c.turn.Store(0)
	}
	c.mu.Unlock()
}

// wait waits until something has changed. mu is held.
func (c *Comm) wait() {
	c.waiting++
	c.changed.Wait()
	c.waiting--
}

// take waits for its turn and takes the communicator, for a group if there is
// one, which keeps it until its end.
func (c *Comm) take(what string, g *group, wanted state) error {
	if c == nil {
		return invalid("no communicator")
	}
	c.lock()
	defer c.unlock()
	for c.state&wanted != 0 && c.busy && (g == nil || c.owner != g) {
		c.wait()
	}
	if c.state&wanted == 0 {
		return c.refusal(what)
	}
	c.busy, c.owner = true, g
	return nil
}

// give ends what take began.
func (c *Comm) give() {
	c.lock()
	c.turn.Store(shut)
	c.busy, c.owner, c.ending = false, nil, false
	c.changed.Broadcast()
	c.unlock()
}

// takeQuick is take by the quick way; it does not wait.
func (c *Comm) takeQuick() bool { return c.turn.CompareAndSwap(0, quick) }

// giveQuick ends what takeQuick began.
func (c *Comm) giveQuick() {
	if !c.turn.CompareAndSwap(quick, 0) {
		c.give() // somebody has asked meanwhile
	}
}
