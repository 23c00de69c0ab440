package nccl

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/dl"
	"github.com/tutti-go/tutti/internal/ncclsys"
)

// Init makes this rank's communicator on a device. All ranks must call it with the same id
// and size. It waits for them until ctx ends. The caller closes the communicator.
func (l *Library) Init(ctx context.Context, d *cuda.Device, id UniqueID, rank, size int, cfg Config) (*Comm, error) {
	if size < 1 || size > math.MaxInt32 || rank < 0 || rank >= size {
		return nil, invalid("rank %d is not one of %d ranks", rank, size)
	}
	return l.create(ctx, "Init", d, nil, false, cfg, func(out *ncclsys.Slot, raw *ncclsys.Config) error {
		return l.sys.CommInit(out, size, ncclsys.UniqueID{Bytes: id}, rank, raw)
	})
}

// InitScalable is Init with several ids, made by different ranks, which starts large jobs
// faster. All ranks pass the same ids in the same order. It needs NCCL 2.23, except with
// one id.
func (l *Library) InitScalable(ctx context.Context, d *cuda.Device, ids []UniqueID, rank, size int, cfg Config) (*Comm, error) {
	if len(ids) == 1 && l.sys.Needs("", 22300) != nil {
		return l.Init(ctx, d, ids[0], rank, size, cfg)
	}
	if size < 1 || size > math.MaxInt32 || rank < 0 || rank >= size || len(ids) < 1 || len(ids) > size {
		return nil, invalid("rank %d, %d ranks and %d ids do not match", rank, size, len(ids))
	}
	raws := make([]ncclsys.UniqueID, len(ids))
	for i, id := range ids {
		raws[i].Bytes = id
	}
	return l.create(ctx, "InitScalable", d, nil, false, cfg, func(out *ncclsys.Slot, raw *ncclsys.Config) error {
		return l.sys.CommInitScalable(out, size, rank, raws, raw)
	})
}

// InitAll makes a communicator over devices of this process, one rank for each device, in
// order. Each rank can be used by a goroutine of its own, or several by one goroutine in a
// Group. If one rank fails, all are aborted. The caller closes them.
func (l *Library) InitAll(ctx context.Context, devices []*cuda.Device, cfg Config) ([]*Comm, error) {
	if len(devices) == 0 {
		return nil, invalid("no devices")
	}
	id, err := l.NewID()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	comms := make([]*Comm, len(devices))
	errs := make(chan error, len(devices))
	for i, d := range devices {
		go func() {
			var err error
			if comms[i], err = l.Init(ctx, d, id, i, len(devices), cfg); err != nil {
				cancel() // the other ranks wait for this one
			}
			errs <- err
		}()
	}
	var failed error
	for range devices {
		if err := <-errs; err != nil && (failed == nil || errors.Is(failed, context.Canceled)) {
			failed = err
		}
	}
	if failed == nil {
		return comms, nil
	}
	for _, c := range comms {
		if c != nil {
			// The error to report is the first cause.
			_ = c.Abort(context.WithoutCancel(ctx))
		}
	}
	return nil, failed
}

// create makes a communicator with a call that waits for other ranks. The call runs on a
// goroutine of its own. When ctx ends first, create returns, the call continues, and what
// it makes is aborted. The caller has taken parent, if there is one; create gives it back
// when the call has returned. An absent rank takes part in the call and gets no
// communicator.
func (l *Library) create(ctx context.Context, what string, d *cuda.Device, parent *Comm, absent bool, cfg Config,
	call func(*ncclsys.Slot, *ncclsys.Config) error,
) (*Comm, error) {
	giveBack := func() {
		if parent != nil {
			parent.give()
		}
	}
	raw, err := cfg.raw(l)
	if err = first(ctx.Err(), err, l.refuseInGroup(what)); err == nil {
		err = d.Retain()
	}
	if err != nil {
		giveBack()
		return nil, err
	}
	c := &Comm{
		lib: l, dev: d, slot: new(ncclsys.Slot), config: raw, nonBlocking: cfg.NonBlocking, state: open,
		done: make(chan struct{}),
	}
	c.changed.L = &c.mu
	push, context, pop := d.Around()
	c.around.Bracket = dl.Bracket{Before: dl.Func(push), Arg: context, After: dl.Func(pop)}
	// The first to set given decides: either the goroutine delivers the communicator, or
	// the context has ended and the goroutine aborts it.
	var given atomic.Bool
	done := make(chan error, 1)
	go func() {
		err := c.make(parent, absent, &given, func() error { return call(c.slot, raw) })
		giveBack()
		if given.CompareAndSwap(false, true) {
			done <- err
			return
		}
		if err == nil {
			c.abortUndelivered()
		}
		_ = d.Release() // the caller has returned; the error has no receiver
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		if given.CompareAndSwap(false, true) {
			return nil, fmt.Errorf("nccl: %s: %w: %w", what, ErrStarted, ctx.Err())
		}
		err = <-done
	}
	if err != nil || c.slot.Handle == 0 {
		return nil, errors.Join(err, d.Release())
	}
	c.cleanup = cuda.Watch(c, d, "communicator")
	return c, nil
}

// make makes the call, and waits if NCCL continues it after returning. It runs on a goroutine that its caller
// may leave when the context ends: that sets unwanted, which ends the wait. After an error no handle is left.
func (c *Comm) make(parent *Comm, absent bool, unwanted *atomic.Bool, call func() error) error {
	err := c.dev.Do(call)
	if err != nil && !errors.Is(err, ncclsys.ErrInProgress) {
		c.slot.Handle = 0 // NCCL has freed the communicator
		return public(err)
	}
	if parent != nil && parent.nonBlocking {
		if err = parent.awaitResult(err); err == nil && !absent {
			err = c.awaitChild(parent, unwanted)
		}
		if err != nil && atomic.LoadUintptr(&c.slot.Handle) == 0 {
			c.freeLateChild(parent)
		}
	}
	if c.slot.Handle == 0 {
		return public(err)
	}
	if c.nonBlocking {
		err = c.awaitReady(unwanted)
	}
	if err == nil {
		err = c.queryRank()
	}
	if err != nil {
		c.abortUndelivered()
		c.slot.Handle = 0
	}
	return public(err)
}

// childTimeout bounds the wait for NCCL to make a communicator that is no longer wanted.
const childTimeout = 5 * time.Second

// awaitChild waits until NCCL has written the handle of a child communicator, which can be
// after the parent is ready. An unwanted child is waited for too, up to childTimeout, because
// it must be freed.
func (c *Comm) awaitChild(parent *Comm, unwanted *atomic.Bool) error {
	var since time.Time
	for pause := 20 * time.Microsecond; atomic.LoadUintptr(&c.slot.Handle) == 0; pause = min(2*pause, time.Millisecond) {
		if unwanted.Load() {
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) > childTimeout {
				return ErrStarted
			}
		}
		time.Sleep(pause)
		if err := parent.awaitResult(nil); err != nil {
			return err
		}
	}
	return nil
}

// freeLateChild frees a child communicator that NCCL may still make from a parent that has failed or is being
// aborted. Its goroutine waits for the parent's end, at most childTimeout; after that NCCL makes no child.
func (c *Comm) freeLateChild(parent *Comm) {
	if c.dev.Retain() != nil {
		return
	}
	lost := &Comm{lib: c.lib, dev: c.dev, slot: c.slot, config: c.config} // NCCL may still write slot and read config
	c.slot = new(ncclsys.Slot)
	go func() {
		t := time.NewTimer(childTimeout)
		defer t.Stop()
		select {
		case <-parent.done:
		case <-t.C:
		}
		if atomic.LoadUintptr(&lost.slot.Handle) != 0 {
			lost.abortUndelivered()
		}
		_ = lost.dev.Release() // the caller has returned; the error has no receiver
	}()
}

// awaitReady polls until a nonblocking communicator has been made. It returns ErrStarted if unwanted is set
// meanwhile. It is called on the goroutine of make.
func (c *Comm) awaitReady(unwanted *atomic.Bool) error {
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		code, err := c.lib.sys.CommAsyncError(c.handle())
		if err != nil || code == 0 {
			return err
		}
		if err := c.lib.sys.Failure("making a communicator", code); !errors.Is(err, ncclsys.ErrInProgress) {
			return err
		}
		if unwanted.Load() {
			return ErrStarted
		}
		time.Sleep(pause)
	}
}

// queryRank sets rank and size from NCCL, and the device's capability.
func (c *Comm) queryRank() (err error) {
	if c.rank, err = c.lib.sys.CommUserRank(c.handle()); err != nil {
		return err
	}
	if c.size, err = c.lib.sys.CommCount(c.handle()); err != nil {
		return err
	}
	c.major, _, err = c.dev.Capability()
	return err
}

// abortUndelivered frees a communicator that no caller has received.
func (c *Comm) abortUndelivered() {
	_ = c.dev.Do(func() error { return c.lib.sys.CommAbort(c.handle()) }) // the error has no receiver
}
