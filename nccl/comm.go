package nccl

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/ncclsys"
	"github.com/tutti-go/tutti/internal/wait"
)

// A state is what may be done with a communicator.
type state int

const (
	open       state = 1 << iota
	revoked          // what ran was ended; it can have children, and be closed
	finalized        // it is at rest; it can only be closed
	closing          // Close waits for calls that are under way; Abort can still take over
	destroying       // the handle is being freed
	closed
	aborting
	aborted
)

// A Comm is this rank's part of a communicator. It may be shared between
// goroutines, whose calls take turns.
type Comm struct {
	// What every call needs comes first, to be in one cache line.
	lib         *Library
	dev         *cuda.Device
	slot        *ncclsys.Slot  // NCCL may write it late, and may not be given a stack
	around      ncclsys.Around // makes the device's context current
	turn        atomic.Uint32  // see takeQuick
	nonBlocking bool

	config     *ncclsys.Config // NCCL may read it late
	rank, size int
	major      int // of the device's compute capability
	held       ncclsys.Held
	cleanup    runtime.Cleanup

	mu      sync.Mutex // see lock
	changed sync.Cond
	waiting int // for a change
	state   state
	busy    bool   // a call, or a group, has the communicator
	owner   *group // that group
	ending  bool   // that group is being ended
	lost    bool   // an abort does not wait any more until the call has returned
	readers int    // calls that only look, and need not take turns
	ops     map[int]bool
	ended   chan struct{} // closed when the handle is gone
	endErr  error
}

// Rank returns this rank's number, from 0.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.size }

// Device returns the device.
func (c *Comm) Device() *cuda.Device { return c.dev }

// Library returns the library.
func (c *Comm) Library() *Library { return c.lib }

// Handle returns the ncclComm_t, for calls into other libraries. It is void when
// the communicator is closed or aborted.
func (c *Comm) Handle() uintptr { return c.slot.Handle }

func (c *Comm) handle() uintptr { return c.slot.Handle }

// refusal is why a communicator in another state than those wanted is of no
// use. mu is held.
func (c *Comm) refusal(what string) error {
	kind := ErrClosed
	switch c.state {
	case aborting, aborted:
		kind = ErrAborted
	case revoked:
		kind = ErrRevoked
	case finalized:
		return fmt.Errorf("nccl: %s: %w: it is finalized, and can only be closed", what, ErrClosed)
	}
	return fmt.Errorf("nccl: %s: %w", what, kind)
}

// A use is one call's hold of a communicator.
type use struct {
	group   *group
	around  *ncclsys.Around // what the call is to be made in; nil in a group of the same device
	quick   bool            // by the quick way
	locked  bool            // to the thread, because there are groups
	context bool            // made current by enter
}

// join takes the communicator for one call into NCCL, to be made in the use's
// bracket.
func (c *Comm) join(what string) (use, error) {
	if c != nil && c.lib.open.Load() == 0 && c.takeQuick() {
		return use{around: &c.around, quick: true}, nil
	}
	return c.queue(what)
}

// queue is join where others may be in the way, or groups open.
func (c *Comm) queue(what string) (use, error) {
	if c == nil {
		return use{}, invalid("no communicator")
	}
	u := use{around: &c.around}
	if c.lib.open.Load() != 0 {
		// A group is a thread's. Where there is none, this goroutine has none.
		runtime.LockOSThread()
		u.locked = true
		u.group = c.lib.current()
	}
	if err := c.take(what, u.group, open); err != nil {
		u.unlock()
		return use{}, err
	}
	if u.group != nil {
		err := c.notHeld()
		if err == nil {
			err = u.group.add(c)
		}
		if err != nil {
			u.unlock()
			return use{}, err
		}
		if u.group.dev == c.dev {
			u.around = nil
		}
	}
	return u, nil
}

func (u *use) unlock() {
	if u.locked {
		runtime.UnlockOSThread()
	}
}

// enter takes the communicator for calls on this thread, with its device's context
// current. What is held is made first.
func (c *Comm) enter(what string) (use, error) {
	u, err := c.join(what)
	if err != nil || u.around == nil {
		return u, err
	}
	if err = public(c.flush()); err == nil {
		err = c.dev.Enter()
	}
	if err != nil {
		c.leave(u)
		return use{}, err
	}
	u.around, u.context = nil, true
	return u, nil
}

// leave ends what join or enter began; in a group, the group keeps the
// communicator.
func (c *Comm) leave(u use) {
	if u.context {
		c.dev.Leave()
	}
	switch {
	case u.quick:
		c.giveQuick()
	case u.group == nil:
		c.give()
	}
	u.unlock()
}

// finish ends a call with its result.
func (c *Comm) finish(u use, err error) error {
	if u.quick && err == nil && !c.nonBlocking {
		c.giveQuick()
		return nil
	}
	switch {
	case u.group == nil:
		err = c.settle(err)
	case errors.Is(err, ncclsys.ErrInProgress):
		err = nil // the group's end waits
	default:
		err = public(err)
	}
	c.leave(u)
	return err
}

// settle waits for a call that NCCL goes on with after it has returned, and
// returns its result. On a communicator that does not block, NCCL may have
// returned success and still be at it. The caller has taken the communicator. An
// abort ends the wait.
func (c *Comm) settle(err error) error {
	if err == nil && !c.nonBlocking {
		return nil
	}
	if err != nil && !errors.Is(err, ncclsys.ErrInProgress) {
		return public(err)
	}
	var pace wait.Poller
	for {
		code, err := c.lib.sys.CommAsyncError(c.handle())
		if err != nil {
			return public(err)
		}
		if code == 0 {
			return nil
		}
		if err := c.lib.sys.Failure("an operation that was in progress", code); !errors.Is(err, ncclsys.ErrInProgress) {
			return public(err)
		}
		if c.is(aborting) {
			return fmt.Errorf("nccl: %w", ErrAborted)
		}
		pace.Pause()
	}
}

func (c *Comm) is(s state) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state&s != 0
}

// AsyncError returns what went wrong on the device or the network since the last
// call, if anything: after that, only Abort, Revoke, Shrink and Close are of use.
// It may be called at any time, from any goroutine.
func (c *Comm) AsyncError() error {
	c.mu.Lock()
	if c.state&(open|revoked|finalized|closing) == 0 {
		defer c.mu.Unlock()
		return c.refusal("AsyncError")
	}
	c.readers++
	c.mu.Unlock()
	code, err := c.lib.sys.CommAsyncError(c.handle())
	c.mu.Lock()
	c.readers--
	c.changed.Broadcast()
	c.mu.Unlock()
	if err != nil {
		return public(err)
	}
	if code == 0 {
		return nil
	}
	if err := c.lib.sys.Failure("an operation on the device", code); !errors.Is(err, ncclsys.ErrInProgress) {
		return public(err)
	}
	return nil
}
