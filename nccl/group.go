package nccl

import (
	"errors"
	"runtime"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/ncclsys"
)

// A group is what one thread calls between a start and an end.
type group struct {
	comms []*Comm
	dev   *cuda.Device // whose context is current for the whole group
	err   error        // the first operation that was refused
}

// current returns this thread's group. The goroutine is locked to the thread.
func (l *Library) current() *group {
	if l.open.Load() == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.groups[thread()]
}

// add makes a communicator part of the group, which has taken it.
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

// Group calls f, and starts what f called on this library's communicators, in
// this goroutine, as one operation: several tensors at once, sends and receives
// that need each other, several devices driven by one goroutine. Nothing starts
// before f returns. If f fails, panics, or any of its calls was refused, nothing
// starts at all; the group is ended in every case. A Group within a Group is part
// of it.
//
// The communicators are taken until the end: goroutines whose groups use the
// same ones must begin with them in the same order.
func (l *Library) Group(f func() error) error {
	_, err := l.group(f, false)
	return err
}

// Simulate calls f like Group, but starts nothing, and returns how long NCCL
// thinks that it would take. It needs NCCL 2.22 and communicators that block.
func (l *Library) Simulate(f func() error) (time.Duration, error) {
	if err := l.sys.Needs("ncclGroupSimulateEnd", 22200); err != nil {
		return 0, public(err)
	}
	return l.group(f, true)
}

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

// end ends a group; a spoilt one without starting anything.
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
		_ = l.sys.GroupEnd() // fails, by intention
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
			if e := c.settle(nil); err == nil {
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

// refuse remembers in the current group, if any, that an operation was not
// accepted, so that the group does not start without it.
func (c *Comm) refuse(err error) error {
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

// grouped returns an error if this goroutine is within a group, for what cannot
// be part of one.
func (l *Library) grouped(what string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if l.current() != nil {
		return invalid("%s cannot be part of a Group", what)
	}
	return nil
}
