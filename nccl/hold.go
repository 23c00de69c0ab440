package nccl

import "fmt"

// Hold makes the communicator record the following collectives and messages. Flush passes
// them to NCCL one after the other, without returning to Go in between. This is for many
// small operations, where the way from Go to C and back is a large part of the time. They
// stay separate operations, unlike those of a Group.
//
// Other calls on the communicator are not recorded; they first make the recorded calls.
// The memory must stay valid until Flush, and then until the stream has completed the
// operations. Goroutines that share the communicator share the recorded calls. Abort and
// Close discard them. Call Flush before Split, Shrink, Grow, Finalize, Suspend and Revoke,
// which do not.
//
// A nonblocking communicator does not record: its calls are made at once. Hold cannot be
// used in a Group.
func (c *Comm) Hold() error {
	u, err := c.acquire("Hold")
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

// Flush makes the recorded calls, up to the first that fails, and ends Hold. The calls
// after a failed one are discarded. Without Hold it does nothing.
func (c *Comm) Flush() error {
	u, err := c.acquire("Flush")
	if err != nil {
		return err
	}
	err = c.flush()
	c.around.Held = nil
	return c.finish(u, err)
}

// flush makes the recorded calls. The caller has taken the communicator.
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

// notHeld returns an error if Hold is active, for calls that would overtake the recorded
// ones. The caller has taken the communicator; with the error, notHeld gives it back.
func (c *Comm) notHeld() error {
	if c.around.Held == nil {
		return nil
	}
	c.give()
	return invalid("a communicator on which Hold is active cannot be part of a Group; call Flush first")
}
