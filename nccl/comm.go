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

// A state is the state of a communicator. The values are bits, for sets of states.
type state int

const (
	open       state = 1 << iota
	revoked          // its operations were aborted; it can have children, and be closed
	finalized        // NCCL has flushed it; it can only be closed
	closing          // Close waits for calls in progress; Abort can still take over
	destroying       // Close frees the handle
	closed
	aborting
	aborted
)

// A Comm is this rank's part of a communicator. It may be shared between goroutines;
// their calls run one after the other.
type Comm struct {
	// The fields that every call needs are in one cache line.
	lib         *Library
	dev         *cuda.Device
	slot        *ncclsys.Slot  // the handle; on the heap, because NCCL may write it after the call
	around      ncclsys.Around // makes the device's context current; a call's owner may change it
	turn        atomic.Uint32  // the fast path of take; see fastTaken
	nonBlocking bool

	config     *ncclsys.Config // NCCL may read it after the call
	rank, size int
	major      int          // of the device's compute capability
	held       ncclsys.Held // the calls that Hold has recorded
	cleanup    runtime.Cleanup

	mu          sync.Mutex    // locked by lock, except where the fast path does not matter
	changed     sync.Cond     // signals changes of the fields below; its lock is mu
	waiting     int           // goroutines in wait; guarded by mu
	state       state         // guarded by mu
	busy        bool          // a call or a group has taken the communicator; guarded by mu
	owner       *group        // the group that has taken it; guarded by mu
	ending      bool          // the owner is in ncclGroupEnd; guarded by mu
	gracePassed bool          // abortGrace has passed: an abort no longer waits for a call in NCCL; guarded by mu
	readers     int           // calls that read the handle and do not take it; guarded by mu
	ops         map[int]bool  // the live operations of PreMulSum by Op.code; guarded by mu
	done        chan struct{} // closed when the handle is freed
	endErr      error         // the result of freeing it; written before done is closed
}

// Rank returns this rank's number in the communicator, from 0.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.size }

// Device returns the communicator's device.
func (c *Comm) Device() *cuda.Device { return c.dev }

// Library returns the communicator's library.
func (c *Comm) Library() *Library { return c.lib }

// Handle returns the ncclComm_t, for calls into other libraries. It is invalid after
// Close or Abort.
func (c *Comm) Handle() uintptr { return c.slot.Handle }

func (c *Comm) handle() uintptr { return c.slot.Handle }

// stateError returns the error of a call that the communicator's state does not allow. The
// caller holds mu.
func (c *Comm) stateError(what string) error {
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

// A use is one call's possession of a communicator, from acquire or acquireInContext to release.
type use struct {
	group   *group          // the group that the call belongs to; nil: none
	around  *ncclsys.Around // to be passed to the NCCL call; nil: the context is current already
	fast    bool            // taken on the fast path
	locked  bool            // the goroutine is locked to its thread
	context bool            // acquireInContext has made the context current
}

// acquire takes the communicator for one call into NCCL, which is made inside the use's
// around. It waits for calls in progress.
func (c *Comm) acquire(what string) (use, error) {
	if c != nil && c.lib.open.Load() == 0 && c.takeFast() {
		return use{around: &c.around, fast: true}, nil
	}
	return c.acquireSlow(what)
}

// acquireSlow is the slow path of acquire: another call may be in progress, or a group open. In a group it locks
// the goroutine to its thread until release, and the group keeps the communicator. After an error the goroutine
// is not locked.
func (c *Comm) acquireSlow(what string) (use, error) {
	if err := c.checkNil(); err != nil {
		return use{}, err
	}
	u := use{around: &c.around}
	if c.lib.open.Load() != 0 {
		// Groups belong to threads. A goroutine that is locked now sees its own group or none.
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

// acquireInContext takes the communicator for NCCL calls that are made with the device's context
// current on this thread. It first makes the calls that Hold has recorded.
func (c *Comm) acquireInContext(what string) (use, error) {
	u, err := c.acquire(what)
	if err != nil || u.around == nil {
		return u, err
	}
	if err = public(c.flush()); err == nil {
		err = c.dev.Enter()
	}
	if err != nil {
		c.release(u)
		return use{}, err
	}
	u.around, u.context = nil, true
	return u, nil
}

// release undoes acquire or acquireInContext. In a group, the group keeps the communicator.
func (c *Comm) release(u use) {
	if u.context {
		c.dev.Leave()
	}
	switch {
	case u.fast:
		c.giveFast()
	case u.group == nil:
		c.give()
	}
	u.unlock()
}

// finish ends a call after NCCL returned err, releases the communicator, and returns the call's error. A
// nonblocking communicator is waited for, except in a group, whose end waits.
func (c *Comm) finish(u use, err error) error {
	if u.fast && err == nil && !c.nonBlocking {
		c.giveFast()
		return nil
	}
	switch {
	case u.group == nil:
		err = c.awaitResult(err)
	case errors.Is(err, ncclsys.ErrInProgress):
		err = nil // the end of the group waits
	default:
		err = public(err)
	}
	c.release(u)
	return err
}

// awaitResult waits for a call that NCCL continues after returning, and returns its result. On
// a nonblocking communicator this can be so even after ncclSuccess. The caller has taken
// the communicator. An abort ends the wait.
func (c *Comm) awaitResult(err error) error {
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

// is reports whether the state is one of s.
func (c *Comm) is(s state) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state&s != 0
}

// AsyncError returns an error on the device or the network that NCCL has noticed after a
// call returned, or nil. After an error only Abort, Revoke, Shrink and Close are useful.
// AsyncError may be called at any time, from any goroutine.
func (c *Comm) AsyncError() error {
	c.mu.Lock()
	if c.state&(open|revoked|finalized|closing) == 0 {
		defer c.mu.Unlock()
		return c.stateError("AsyncError")
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
