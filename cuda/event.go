package cuda

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/cudasys"
)

// An Event marks a point in a stream. It may be shared between goroutines and be
// recorded any number of times.
type Event struct {
	dev     *Device
	handle  uintptr // the CUevent
	cleanup runtime.Cleanup

	mu     sync.Mutex // held by Close
	closed atomic.Bool
}

// NewEvent makes an event that orders streams. The caller closes it.
func (d *Device) NewEvent() (*Event, error) { return d.newEvent(cudasys.EventDisableTiming) }

// NewTimer makes an event that also records the time; see Since. The caller closes
// it.
func (d *Device) NewTimer() (*Event, error) { return d.newEvent(0) }

func (d *Device) newEvent(flags uint32) (*Event, error) {
	if err := d.retain(); err != nil {
		return nil, err
	}
	h, err := d.create(func() (uintptr, error) { return d.drv.EventCreate(flags) })
	if err != nil {
		return nil, err
	}
	e := &Event{dev: d, handle: h}
	e.cleanup = watch(e, d, "event")
	return e, nil
}

// Close destroys the event. Streams that already wait for it still do. Further calls
// of Close do nothing.
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

// Record marks the end of the work now in the stream, which must be on the event's
// device.
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

// Done reports whether the work before the last Record is complete. It is true for an
// event that was never recorded.
func (e *Event) Done() (bool, error) {
	if err := e.check(); err != nil {
		return false, err
	}
	done, err := e.dev.drv.EventQuery(e.handle)
	return done, public(err)
}

// Synchronize waits until the work before the last Record is complete.
func (e *Event) Synchronize() error {
	if err := e.check(); err != nil {
		return err
	}
	return public(e.dev.drv.EventSynchronize(e.handle))
}

// Wait waits until the work before the last Record is complete, or ctx ends.
func (e *Event) Wait(ctx context.Context) error { return poll(ctx, e.Done) }

// Since returns the time on the device between start and this event. Both must come
// from NewTimer and be complete.
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
