package nccl

import "fmt"

// Hold has the operations that follow on this communicator noted only: Flush gives
// them to NCCL, one after the other, without coming back to Go in between. That is for
// many small ones, of which the way into C and back is a part of what they take; they
// are not one operation, as those of a Group are. What else is called on the
// communicator is not noted, and comes after what was. The memory must be kept until
// Flush, and then until the stream is done, as always. Goroutines that share the
// communicator share what is held. Abort and Close forget it; Flush before Split, Shrink,
// Grow, Finalize, Suspend and Revoke, which do not wait for it.
//
// Calls on communicators that do not block are not held: they are made at once. Those
// that are part of a Group cannot be held.
func (c *Comm) Hold() error {
	u, err := c.join("Hold")
	switch {
	case err != nil:
		return err
	case u.group != nil:
		err = invalid("Hold cannot be part of a Group")
	case c.around.Held == nil && !c.nonBlocking:
		c.held.Drop()
		c.around.Held = &c.held
	}
	return c.finish(u, err)
}

// Flush makes the calls that were held, until one fails, and ends Hold. Those after
// one that failed are not made. Without Hold it does nothing.
func (c *Comm) Flush() error {
	u, err := c.join("Flush")
	if err != nil {
		return err
	}
	err = c.flush()
	c.around.Held = nil
	return c.finish(u, err)
}

// flush makes the calls that are held. The caller has taken the communicator.
func (c *Comm) flush() error {
	h := c.around.Held
	if h == nil || h.Empty() {
		return nil
	}
	stopped, err := c.lib.sys.Flush(&c.around.Bracket, h)
	if stopped && err == nil {
		err = fmt.Errorf("nccl: Flush: %w", ErrAborted)
	}
	return err
}

// notHeld returns an error if calls are held, for what would come before them. The
// caller has taken the communicator, which is given back then.
func (c *Comm) notHeld() error {
	if c.around.Held == nil {
		return nil
	}
	c.give()
	return invalid("a communicator that is held cannot be part of a Group: Flush it first")
}
