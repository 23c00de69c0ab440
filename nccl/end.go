package nccl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tutti-go/tutti/internal/ncclsys"
)

// Close waits for calls that are under way and frees the communicator. If there
// was an asynchronous error, it aborts instead, which waits for nobody. It may be
// called again, and while another goroutine aborts. Streams that hold collectives
// should be synchronized first.
func (c *Comm) Close() error {
	if c == nil {
		return nil
	}
	if err := c.lib.grouped("Close"); err != nil {
		return err
	}
	c.lock()
	wasFinal := c.state == finalized || c.state == revoked
	if c.state&(open|revoked|finalized) == 0 {
		c.unlock()
		<-c.ended
		return nil
	}
	c.state = closing
	c.changed.Broadcast()
	if !c.rest(closing) {
		c.unlock()
		<-c.ended // an abort took over
		return nil
	}
	c.busy = true
	c.unlock()

	failed := c.AsyncError() != nil
	if !failed && c.nonBlocking && !wasFinal {
		failed = c.settle(c.dev.Do(func() error { return c.lib.sys.CommFinalize(c.handle()) })) != nil
	}

	c.lock()
	c.busy = false
	if c.state != closing {
		c.changed.Broadcast()
		c.unlock()
		<-c.ended
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

// rest waits until nothing uses the communicator, and reports whether it is
// still in that state. mu is held.
func (c *Comm) rest(s state) bool {
	for c.state == s && (c.busy || c.readers > 0) {
		c.wait()
	}
	return c.state == s
}

// end frees the handle and tells everyone who waits for that.
func (c *Comm) end(s state, free func(uintptr) error) {
	err := c.dev.Do(func() error { return free(c.handle()) })
	if errors.Is(err, ncclsys.ErrInProgress) {
		err = nil // it goes on by itself, and the handle is gone
	}
	err = errors.Join(public(err), c.dev.Release())
	c.cleanup.Stop()
	c.lock()
	c.state, c.endErr = s, err
	c.changed.Broadcast()
	c.unlock()
	close(c.ended)
}

// Abort ends what runs on the communicator, also what waits for ranks that are
// gone, and frees it. It may be called from any goroutine, and again; after Close
// it does nothing. NCCL wants no call on the communicator to be under way: it
// waits for that, and for NCCL, until the context ends, and then goes on by
// itself. The error is an ErrBusy if a call had not returned. A call that has been
// in NCCL for a second after the Abort, because it waits for a rank that does not
// come, is aborted under way: nothing else ends it.
//
// Other ranks are not told. Communicators of one process must be aborted
// together: see AbortAll.
func (c *Comm) Abort(ctx context.Context) error {
	if c == nil {
		return nil
	}
	if err := c.lib.grouped("Abort"); err != nil {
		return err
	}
	c.startAbort()
	return c.awaitEnd(ctx)
}

// AbortAll aborts communicators at the same time: NCCL's abort of one may wait
// for that of another.
func AbortAll(ctx context.Context, comms ...*Comm) error {
	for _, c := range comms {
		if c != nil {
			if err := c.lib.grouped("AbortAll"); err != nil {
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

// startAbort begins an abort, once, on a thread of its own, because NCCL's may
// hang.
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
			defer time.AfterFunc(grace, c.lose).Stop()
		}
		for (c.busy || c.readers > 0) && !(c.lost && c.inside()) {
			c.wait()
		}
		c.unlock()
		c.end(aborted, c.lib.sys.CommAbort)
	}()
}

// grace is how long a call may take to return from NCCL before an abort comes
// upon it.
const grace = time.Second

// lose gives up the hope that a call returns by itself.
func (c *Comm) lose() {
	c.lock()
	defer c.unlock()
	c.lost = true
	c.changed.Broadcast()
}

// inside reports whether the call that has the communicator is in NCCL, and not in
// a group that is still open: that would use it when it ends. mu is held.
func (c *Comm) inside() bool { return c.readers == 0 && (c.owner == nil || c.ending) }

func (c *Comm) awaitEnd(ctx context.Context) error {
	select {
	case <-c.ended:
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

// An AbortHandle aborts a communicator. It can be kept and passed around without
// the communicator, fired from any goroutine, and is harmless after Close.
type AbortHandle struct{ c *Comm }

// AbortHandle returns a handle by which the communicator can be aborted.
func (c *Comm) AbortHandle() AbortHandle { return AbortHandle{c} }

// Abort is Comm.Abort.
func (h AbortHandle) Abort(ctx context.Context) error { return h.c.Abort(ctx) }

// Revoke ends what runs on the communicator and keeps it for Split, Shrink and
// Close. Other ranks are not told. It needs NCCL 2.28.7.
func (c *Comm) Revoke(ctx context.Context) error {
	return c.manage(ctx, "Revoke", open, revoked, c.lib.sys.CommRevoke)
}

// Finalize flushes what was started and brings the communicator to rest, with
// those of all other ranks; after it, only Close and Abort are of use.
func (c *Comm) Finalize(ctx context.Context) error {
	return c.manage(ctx, "Finalize", open, finalized, c.lib.sys.CommFinalize)
}

// Suspend gives the communicator's device memory back until Resume. It needs NCCL
// 2.29.7.
func (c *Comm) Suspend(ctx context.Context) error {
	const memory = 1
	return c.manage(ctx, "Suspend", open, open, func(h uintptr) error { return c.lib.sys.CommSuspend(h, memory) })
}

// Resume ends Suspend.
func (c *Comm) Resume(ctx context.Context) error {
	return c.manage(ctx, "Resume", open, open, c.lib.sys.CommResume)
}

// manage makes a call that may wait for other ranks, on a thread of its own, and
// changes the state. When the context ends first, the call is left to itself, and
// keeps the communicator until it returns.
func (c *Comm) manage(ctx context.Context, what string, from, to state, call func(uintptr) error) error {
	if err := first(ctx.Err(), c.lib.grouped(what)); err != nil {
		return err
	}
	if err := c.take(what, nil, from); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := c.dev.Do(func() error { return call(c.handle()) })
		if err = c.settle(err); err == nil {
			c.move(from, to)
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

// MemoryStats is what a communicator holds of the device's memory, in bytes.
type MemoryStats struct {
	Suspendable uint64 // that Suspend gives back
	Persistent  uint64 // that it does not
	Total       uint64
	Suspended   bool // whether it has
}

// MemoryStats asks NCCL what the communicator holds. It needs NCCL 2.29.7.
func (c *Comm) MemoryStats() (MemoryStats, error) {
	u, err := c.enter("MemoryStats")
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
