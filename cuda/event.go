package cuda

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/cudasys"
)

// An Event marks a place in a stream. It may be shared between goroutines, and
// recorded again and again.
type Event struct {
	dev     *Device
	handle  uintptr
	cleanup runtime.Cleanup

	mu     sync.Mutex // held by Close
	closed atomic.Bool
}

// NewEvent makes an event for ordering streams. The caller closes it.
func (d *Device) NewEvent() (*Event, error) { return d.newEvent(cudasys.EventDisableTiming) }

// NewTimer makes an event that also knows when it was reached; see Since. The
// caller closes it.
func (d *Device) NewTimer() (*Event, error) { return d.newEvent(0) }

func (d *Device) newEvent(flags uint32) (*Event, error) {
	if err := d.retain(); err != nil {
		return nil, err
	}
	h, err := d.inside(func() (uintptr, error) { return d.drv.EventCreate(flags) })
	if err != nil {
		return nil, err
	}
	e := &Event{dev: d, handle: h}
	e.cleanup = watch(e, d, "event")
	return e, nil
}

// Close ends the event; streams that wait for it still do. It may be called
// again.
func (e *Event) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Swap(true) {
		return nil
	}
	e.cleanup.Stop()
	err := public(e.dev.drv.EventDestroy(e.handle))
	if r := e.dev.release(); err == nil {
		err = r
	}
	return err
}

func (e *Event) check() error {
	if e == nil {
		return invalid("no event")
	}
	if e.closed.Load() {
		return ended("the event", ErrClosed)
	}
	return nil
}

// Handle returns the CUevent.
func (e *Event) Handle() uintptr { return e.handle }

// Record marks the end of what the stream, one of the event's device, holds now.
func (e *Event) Record(s *Stream) error {
	if err := e.check(); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	if s.dev.ordinal != e.dev.ordinal {
		return invalid("the event is of %v, the stream of %v", e.dev, s.dev)
	}
	return s.dev.withHandle(s.handle, func() error { return e.dev.drv.EventRecord(e.handle, s.handle) })
}

// Done reports whether what was last marked is done. An event that was never
// recorded is.
func (e *Event) Done() (bool, error) {
	if err := e.check(); err != nil {
		return false, err
	}
	done, err := e.dev.drv.EventQuery(e.handle)
	return done, public(err)
}

// Synchronize waits until what was last marked is done.
func (e *Event) Synchronize() error {
	if err := e.check(); err != nil {
		return err
	}
	return public(e.dev.drv.EventSynchronize(e.handle))
}

// Wait waits until what was last marked is done, or the context ends.
func (e *Event) Wait(ctx context.Context) error { return poll(ctx, e.Done) }

// Since returns the time from one event to this one. Both must come from
// NewTimer and be done.
func (e *Event) Since(start *Event) (time.Duration, error) {
	if err := e.check(); err != nil {
		return 0, err
	}
	if err := start.check(); err != nil {
		return 0, err
	}
	ms, err := e.dev.drv.EventElapsed(start.handle, e.handle)
	return time.Duration(float64(ms) * float64(time.Millisecond)), public(err)
}
