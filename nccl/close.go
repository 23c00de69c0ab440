package nccl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tutti-go/tutti/internal/ncclsys"
)

// Close waits for calls in progress and frees the communicator. After an asynchronous
// error it aborts instead, which does not wait for other ranks. Further calls of Close,
// and a concurrent Abort, are allowed. Synchronize the streams that hold collectives
// first.
func (c *Comm) Close() error {
	if c == nil {
		return nil
	}
	if err := c.lib.refuseInGroup("Close"); err != nil {
		return err
	}
	c.lock()
	wasFinal := c.state == finalized || c.state == revoked
	if c.state&(open|revoked|finalized) == 0 {
		c.unlock()
		<-c.done
		return nil
	}
	c.state = closing
	c.changed.Broadcast()
	if !c.awaitIdle(closing) {
		c.unlock()
		<-c.done // an abort took over
		return nil
	}
	c.busy = true
	c.unlock()

	failed := c.AsyncError() != nil
	if !failed && c.nonBlocking && !wasFinal {
		failed = c.awaitResult(c.dev.Do(func() error { return c.lib.sys.CommFinalize(c.handle()) })) != nil
	}

	c.lock()
	c.busy = false
	if c.state != closing {
		c.changed.Broadcast()
		c.unlock()
		<-c.done
		return nil
	}
	c.state = destroying
	c.unlock()
	free := c.lib.sys.CommDestroy
	if failed {
		free = c.lib.sys.CommAbort
	}
	c.end(closed, free)
	return c.endErr
}

// awaitIdle waits until no call uses the communicator, and reports whether its state is still
// s. The caller holds mu.
func (c *Comm) awaitIdle(s state) bool {
	for c.state == s && (c.busy || c.readers > 0) {
		c.wait()
	}
	return c.state == s
}

// end frees the handle, sets the final state and closes done.
func (c *Comm) end(s state, free func(uintptr) error) {
	err := c.dev.Do(func() error { return free(c.handle()) })
	if errors.Is(err, ncclsys.ErrInProgress) {
		err = nil // NCCL completes it in the background; the handle is invalid
	}
	err = errors.Join(public(err), c.dev.Release())
	c.cleanup.Stop()
	c.lock()
	c.state, c.endErr = s, err
	c.changed.Broadcast()
	c.unlock()
	close(c.done)
}

// Abort ends the operations on the communicator, also those that wait for ranks that have
// exited, and frees it. It may be called from any goroutine and more than once; after
// Close it does nothing.
//
// NCCL does not allow an abort while a call on the communicator is in progress. Abort waits
// for that call, and for NCCL, until ctx ends; then the abort continues in the background.
// The error matches ErrBusy if the call had not returned by then. A call may be in NCCL for
// good, because it waits for a rank that does not come. If it has not returned a second
// after Abort began, Abort aborts during the call, since nothing else would end it.
//
// Other ranks are not notified. Communicators of one process must be aborted together; see
// AbortAll.
func (c *Comm) Abort(ctx context.Context) error {
	if c == nil {
		return nil
	}
	if err := c.lib.refuseInGroup("Abort"); err != nil {
		return err
	}
	c.startAbort()
	return c.awaitEnd(ctx)
}

// AbortAll aborts several communicators at the same time: in NCCL, the abort of one communicator may wait for
// the abort of another. It waits for all of them until ctx ends; the aborts then continue on their
// goroutines. It is refused inside a Group.
func AbortAll(ctx context.Context, comms ...*Comm) error {
	for _, c := range comms {
		if c != nil {
			if err := c.lib.refuseInGroup("AbortAll"); err != nil {
				return err
			}
		}
	}
	var errs []error
	for _, c := range comms {
		if c != nil {
			c.startAbort()
		}
	}
	for _, c := range comms {
		if c != nil {
			errs = append(errs, c.awaitEnd(ctx))
		}
	}
	return errors.Join(errs...)
}

// startAbort starts an abort, unless one has started or the communicator is being freed.
// The abort runs on a goroutine of its own, because ncclCommAbort can hang.
func (c *Comm) startAbort() {
	c.lock()
	defer c.unlock()
	if c.state&(open|revoked|finalized|closing) == 0 {
		return
	}
	c.state = aborting
	c.held.Stop.Store(1)
	c.changed.Broadcast()
	go func() {
		c.lock()
		if c.busy && !c.nonBlocking {
			defer time.AfterFunc(abortGrace, c.graceOver).Stop()
		}
		for (c.busy || c.readers > 0) && !(c.gracePassed && c.canAbortInCall()) {
			c.wait()
		}
		c.unlock()
		c.end(aborted, c.lib.sys.CommAbort)
	}()
}

// abortGrace is how long an abort waits for a call to return from NCCL before it aborts during
// the call.
const abortGrace = time.Second

// graceOver makes the abort wait no longer for a call in NCCL.
func (c *Comm) graceOver() {
	c.lock()
	defer c.unlock()
	c.gracePassed = true
	c.changed.Broadcast()
}

// canAbortInCall reports whether an abort during the current call is possible: the call is in NCCL.
// A group that is still open is not; it would use the communicator when it ends. The
// caller holds mu.
func (c *Comm) canAbortInCall() bool { return c.readers == 0 && (c.owner == nil || c.ending) }

func (c *Comm) awaitEnd(ctx context.Context) error {
	select {
	case <-c.done:
		return c.endErr
	case <-ctx.Done():
	}
	c.lock()
	defer c.unlock()
	if c.busy {
		return fmt.Errorf("nccl: Abort: %w: %w", ErrBusy, ctx.Err())
	}
	return fmt.Errorf("nccl: Abort: %w: %w", ErrStarted, ctx.Err())
}

// An AbortHandle aborts a communicator. Its holder needs no access to the communicator.
// It may be used from any goroutine, and does nothing after Close.
type AbortHandle struct{ c *Comm }

// AbortHandle returns a handle that aborts the communicator.
func (c *Comm) AbortHandle() AbortHandle { return AbortHandle{c} }

// Abort is Comm.Abort.
func (h AbortHandle) Abort(ctx context.Context) error { return h.c.Abort(ctx) }

// Revoke ends the operations on the communicator and keeps it for Split, Shrink and Close.
// Other ranks are not notified. It needs NCCL 2.28.7.
func (c *Comm) Revoke(ctx context.Context) error {
	return c.manage(ctx, "Revoke", open, revoked, c.lib.sys.CommRevoke)
}

// Finalize flushes the operations on the communicator. All ranks must call it. After it,
// only Close and Abort are useful.
func (c *Comm) Finalize(ctx context.Context) error {
	return c.manage(ctx, "Finalize", open, finalized, c.lib.sys.CommFinalize)
}

// Suspend releases the communicator's device memory until Resume. It needs NCCL 2.29.7.
func (c *Comm) Suspend(ctx context.Context) error {
	const memory = 1
	return c.manage(ctx, "Suspend", open, open, func(h uintptr) error { return c.lib.sys.CommSuspend(h, memory) })
}

// Resume undoes Suspend.
func (c *Comm) Resume(ctx context.Context) error {
	return c.manage(ctx, "Resume", open, open, c.lib.sys.CommResume)
}

// manage makes a call that may wait for other ranks, on a goroutine of its own, and changes
// the state if it succeeds. When ctx ends first, manage returns; the call continues and
// keeps the communicator until it returns.
func (c *Comm) manage(ctx context.Context, what string, from, to state, call func(uintptr) error) error {
	if err := first(ctx.Err(), c.lib.refuseInGroup(what)); err != nil {
		return err
	}
	if err := c.take(what, nil, from); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := c.dev.Do(func() error { return call(c.handle()) })
		if err = c.awaitResult(err); err == nil {
			c.transition(from, to)
		}
		c.give()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("nccl: %s: %w: %w", what, ErrStarted, ctx.Err())
	}
}

// MemoryStats is the device memory that a communicator holds, in bytes.
type MemoryStats struct {
	Suspendable uint64 // released by Suspend
	Persistent  uint64 // not released by Suspend
	Total       uint64
	Suspended   bool // the communicator is suspended
}

// MemoryStats returns the memory that the communicator holds. It needs NCCL 2.29.7.
func (c *Comm) MemoryStats() (MemoryStats, error) {
	u, err := c.acquireInContext("MemoryStats")
	if err != nil {
		return MemoryStats{}, err
	}
	var n [4]uint64
	for i := range n {
		if n[i], err = c.lib.sys.CommMemStats(c.handle(), i); err != nil {
			break
		}
	}
	return MemoryStats{Suspendable: n[0], Suspended: n[1] == 1, Persistent: n[2], Total: n[3]}, c.finish(u, err)
}
