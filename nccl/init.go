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

// Init makes this rank's communicator on a device. All ranks must call it, with
// the same id and size; it waits for them until the context ends. The caller
// closes the communicator.
func (l *Library) Init(ctx context.Context, d *cuda.Device, id UniqueID, rank, size int, cfg Config) (*Comm, error) {
	if size < 1 || size > math.MaxInt32 || rank < 0 || rank >= size {
		return nil, invalid("rank %d of %d", rank, size)
	}
	return l.create(ctx, "Init", d, nil, false, cfg, func(out *ncclsys.Slot, raw *ncclsys.Config) error {
		return l.sys.CommInit(out, size, ncclsys.UniqueID{Bytes: id}, rank, raw)
	})
}

// InitScalable is Init with several ids, made by different ranks, which makes the
// start of very many ranks faster. All ranks have the same ids in the same order.
// It needs NCCL 2.23, except with one id.
func (l *Library) InitScalable(ctx context.Context, d *cuda.Device, ids []UniqueID, rank, size int, cfg Config) (*Comm, error) {
	if len(ids) == 1 && l.sys.Needs("", 22300) != nil {
		return l.Init(ctx, d, ids[0], rank, size, cfg)
	}
	if size < 1 || size > math.MaxInt32 || rank < 0 || rank >= size || len(ids) < 1 || len(ids) > size {
		return nil, invalid("rank %d of %d, %d ids", rank, size, len(ids))
	}
	raws := make([]ncclsys.UniqueID, len(ids))
	for i, id := range ids {
		raws[i].Bytes = id
	}
	return l.create(ctx, "InitScalable", d, nil, false, cfg, func(out *ncclsys.Slot, raw *ncclsys.Config) error {
		return l.sys.CommInitScalable(out, size, rank, raws, raw)
	})
}

// InitAll makes a communicator over devices of this process, one rank for each,
// in their order. Each can be handed to a goroutine of its own, or several be
// driven by one in a Group. If one fails, all end. The caller closes them.
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
				cancel() // the others wait for this one
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
			// The first cause is the one to report.
			_ = c.Abort(context.WithoutCancel(ctx))
		}
	}
	return nil, failed
}

// create makes a communicator by a call that waits for other ranks. The call has
// a goroutine, and so a thread, of its own: when the context ends first, it is
// left to itself, and what it makes is aborted. A parent has been taken, and is
// given back when the call has returned. An absent rank takes part in the call and
// gets nothing.
func (l *Library) create(ctx context.Context, what string, d *cuda.Device, parent *Comm, absent bool, cfg Config,
	call func(*ncclsys.Slot, *ncclsys.Config) error,
) (*Comm, error) {
	giveBack := func() {
		if parent != nil {
			parent.give()
		}
	}
	raw, err := cfg.raw(l)
	if err = first(ctx.Err(), err, l.grouped(what)); err == nil {
		err = d.Retain()
	}
	if err != nil {
		giveBack()
		return nil, err
	}
	c := &Comm{
		lib: l, dev: d, slot: new(ncclsys.Slot), config: raw, nonBlocking: cfg.NonBlocking, state: open,
		ended: make(chan struct{}),
	}
	c.changed.L = &c.mu
	push, context, pop := d.Around()
	c.around.Bracket = dl.Bracket{Before: dl.Func(push), Arg: context, After: dl.Func(pop)}
	// Whoever sets given first decides: the goroutine delivers what it made, or
	// the context has ended and nobody wants it any more.
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
			c.drop()
		}
		_ = d.Release() // there is nobody left to tell
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

// make carries the call out and, if NCCL goes on after it has returned, waits for
// that, unless the communicator is not wanted any more.
func (c *Comm) make(parent *Comm, absent bool, unwanted *atomic.Bool, call func() error) error {
	err := c.dev.Do(call)
	if err != nil && !errors.Is(err, ncclsys.ErrInProgress) {
		c.slot.Handle = 0 // NCCL has freed what there was
		return public(err)
	}
	if parent != nil && parent.nonBlocking {
		if err = parent.settle(err); err == nil && !absent {
			err = c.appear(parent, unwanted)
		}
		if err != nil && atomic.LoadUintptr(&c.slot.Handle) == 0 {
			c.reap(parent)
		}
	}
	if c.slot.Handle == 0 {
		return public(err)
	}
	if c.nonBlocking {
		err = c.ready(unwanted)
	}
	if err == nil {
		err = c.ask()
	}
	if err != nil {
		c.drop()
		c.slot.Handle = 0
	}
	return public(err)
}

// birth is how long NCCL may take to make a communicator that nobody wants any
// more.
const birth = 5 * time.Second

// appear waits until NCCL has written the handle of a communicator that is made
// of another: that can be after the other one is said to be ready. One that is not
// wanted any more is waited for, too, for a time, because it must be ended.
func (c *Comm) appear(parent *Comm, unwanted *atomic.Bool) error {
	var since time.Time
	for pause := 20 * time.Microsecond; atomic.LoadUintptr(&c.slot.Handle) == 0; pause = min(2*pause, time.Millisecond) {
		if unwanted.Load() {
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) > birth {
				return ErrStarted
			}
		}
		time.Sleep(pause)
		if err := parent.settle(nil); err != nil {
			return err
		}
	}
	return nil
}

// reap ends a communicator that NCCL may still make of one that has failed or is
// being aborted; once that has ended, there is nothing more to come.
func (c *Comm) reap(parent *Comm) {
	if c.dev.Retain() != nil {
		return
	}
	lost := &Comm{lib: c.lib, dev: c.dev, slot: c.slot, config: c.config} // which NCCL may still write and read
	c.slot = new(ncclsys.Slot)
	go func() {
		t := time.NewTimer(birth)
		defer t.Stop()
		select {
		case <-parent.ended:
		case <-t.C:
		}
		if atomic.LoadUintptr(&lost.slot.Handle) != 0 {
			lost.drop()
		}
		_ = lost.dev.Release() // there is nobody left to tell
	}()
}

// ready waits until a communicator that does not block has been made.
func (c *Comm) ready(unwanted *atomic.Bool) error {
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

// ask learns from NCCL which rank this is.
func (c *Comm) ask() (err error) {
	if c.rank, err = c.lib.sys.CommUserRank(c.handle()); err != nil {
		return err
	}
	if c.size, err = c.lib.sys.CommCount(c.handle()); err != nil {
		return err
	}
	c.major, _, err = c.dev.Capability()
	return err
}

// drop ends a communicator that nobody has been given.
func (c *Comm) drop() {
	_ = c.dev.Do(func() error { return c.lib.sys.CommAbort(c.handle()) }) // there is nobody to tell
}
