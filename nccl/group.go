package nccl

import (
	"errors"
	"runtime"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/ncclsys"
)

// A group is an open ncclGroupStart of one thread. Only that thread's goroutine uses it.
type group struct {
	comms []*Comm      // taken by the group, in the order of their first calls
	dev   *cuda.Device // its context is current until the group ends; nil: no call yet
	err   error        // the error of the first operation that was refused
}

// current returns this thread's group, or nil. The goroutine must be locked to its thread.
func (l *Library) current() *group {
	if l.open.Load() == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.groups[thread()]
}

// add adds a communicator that the current call has taken; the group keeps it until its end. It is called on
// the thread of the group. If the device cannot be made current, the communicator is released again.
func (g *group) add(c *Comm) error {
	for _, have := range g.comms {
		if have == c {
			return nil
		}
	}
	if g.dev == nil {
		if err := c.dev.Enter(); err != nil {
			c.give()
			return err
		}
		g.dev = c.dev
	}
	g.comms = append(g.comms, c)
	return nil
}

// Group calls f, and starts the operations that f calls on this library's communicators
// as one operation, as ncclGroupStart and ncclGroupEnd. It is for several tensors at once,
// for sends and receives that depend on each other, and for several devices in one
// goroutine. Only calls in the goroutine of f are part of it.
//
// No operation starts before f returns. If f fails or panics, or a call in it is refused,
// no operation starts at all. The group is ended in every case. A Group within a Group is
// part of the outer one.
//
// If the function of an inner Group fails, the operations start all the same, unless f returns its error.
//
// The group keeps the communicators until its end. Goroutines with concurrent groups must
// first use shared communicators in the same order, or they deadlock.
func (l *Library) Group(f func() error) error {
	_, err := l.group(f, false)
	return err
}

// Simulate calls f as Group does, but starts nothing. It returns NCCL's estimate of the
// time that the operations would take. It needs NCCL 2.22 and blocking communicators.
func (l *Library) Simulate(f func() error) (time.Duration, error) {
	if err := l.sys.Needs("ncclGroupSimulateEnd", 22200); err != nil {
		return 0, public(err)
	}
	return l.group(f, true)
}

// group is Group, or Simulate if simulate is set. It locks the goroutine to its thread, because the open
// group belongs to the thread. If f fails or panics, or a call in it was refused, end starts no operation. A
// nested group only calls f.
func (l *Library) group(f func() error, simulate bool) (estimate time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if l.current() != nil {
		if simulate {
			return 0, invalid("a simulation cannot be part of a Group")
		}
		return 0, f()
	}
	if err := l.sys.GroupStart(); err != nil {
		return 0, public(err)
	}
	g := new(group)
	l.register(thread(), g)
	returned := false
	defer func() {
		l.register(thread(), nil)
		if err == nil {
			err = g.err
		}
		spoilt := err != nil || !returned
		var end error
		estimate, end = l.end(g, spoilt, simulate)
		if !spoilt {
			err = end
		}
	}()
	err = f()
	returned = true
	return 0, err
}

// end ends a group, on its thread, and releases its communicators. A spoilt group ends without starting
// anything. For nonblocking communicators it waits until each has started its operations, and returns the
// first error.
func (l *Library) end(g *group, spoilt, simulate bool) (estimate time.Duration, err error) {
	for _, c := range g.comms {
		c.mu.Lock()
		c.ending = true
		c.changed.Broadcast()
		c.mu.Unlock()
	}
	switch {
	case spoilt:
		l.sys.GroupSpoil()
		_ = l.sys.GroupEnd() // fails: GroupSpoil ensures it
	case simulate:
		var us float32
		us, err = l.sys.GroupSimulateEnd()
		estimate = time.Duration(float64(us) * float64(time.Microsecond))
	default:
		err = l.sys.GroupEnd()
	}
	late := errors.Is(err, ncclsys.ErrInProgress)
	if err = public(err); late {
		err = nil
	}
	for _, c := range g.comms {
		if late || err == nil && !spoilt && !simulate {
			if e := c.awaitResult(nil); err == nil {
				err = e
			}
		}
		c.give()
	}
	if g.dev != nil {
		g.dev.Leave()
	}
	return estimate, err
}

func (l *Library) register(tid int, g *group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g == nil {
		delete(l.groups, tid)
		l.open.Add(-1)
		return
	}
	l.groups[tid] = g
	l.open.Add(1)
}

// recordRefusal records in the current group, if any, that an operation was refused, so that the
// group starts nothing. It returns err.
func (c *Comm) recordRefusal(err error) error {
	if c == nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if g := c.lib.current(); g != nil && g.err == nil {
		g.err = err
	}
	return err
}

// refuseInGroup returns an error if this goroutine is in a group, for calls that cannot be part
// of one.
func (l *Library) refuseInGroup(what string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if l.current() != nil {
		return invalid("%s cannot be part of a Group", what)
	}
	return nil
}
