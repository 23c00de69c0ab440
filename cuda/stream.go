package cuda

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/cudasys"
	"github.com/tutti-go/tutti/internal/wait"
)

// A Stream is a queue of work on a device. Work in one stream runs in order; work in
// different streams is not ordered. A Stream may be shared between goroutines, which
// then order their submissions themselves.
type Stream struct {
	dev     *Device
	handle  uintptr // the CUstream
	foreign bool    // made by WrapStream: another library owns it
	cleanup runtime.Cleanup

	mu     sync.Mutex // held by Close
	closed atomic.Bool
}

// NewStream makes a stream that does not synchronize with the legacy default stream.
// The caller closes it.
func (d *Device) NewStream() (*Stream, error) { return d.newStream(0) }

// NewUrgentStream makes a stream of higher priority than NewStream. The caller closes it.
func (d *Device) NewUrgentStream() (*Stream, error) { return d.newStream(-1) }

func (d *Device) newStream(priority int) (*Stream, error) {
	if err := d.retain(); err != nil {
		return nil, err
	}
	h, err := d.create(func() (uintptr, error) { return d.drv.StreamCreate(cudasys.StreamNonBlocking, priority) })
	if err != nil {
		return nil, err
	}
	s := &Stream{dev: d, handle: h}
	s.cleanup = watch(s, d, "stream")
	return s, nil
}

// create calls f, which makes an object, with the context current. If f fails, create
// releases the use that the caller has retained.
func (d *Device) create(f func() (uintptr, error)) (uintptr, error) {
	err := d.enter()
	if err == nil {
		var h uintptr
		h, err = f()
		d.leave()
		if err == nil {
			return h, nil
		}
	}
	_ = d.release()
	return 0, public(err)
}

// WrapStream returns a Stream for a CUstream or cudaStream_t that another library owns.
// The handle 0 is the legacy default stream. Close ends only the Stream.
func (d *Device) WrapStream(handle uintptr) (*Stream, error) {
	if err := d.Enter(); err != nil {
		return nil, err
	}
	defer d.Leave()
	if handle > lastDefaultStream {
		ctx, err := d.drv.StreamCtx(handle)
		if err != nil {
			return nil, public(err)
		}
		if ctx != d.ctx {
			return nil, invalid("the stream is not of %v's primary context", d)
		}
	}
	return &Stream{dev: d, handle: handle, foreign: true}, nil
}

// Close destroys the stream. Work that is in it still completes. Further calls of Close do nothing. s.mu
// makes a concurrent Close wait.
func (s *Stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Swap(true) {
		return nil
	}
	if s.foreign {
		return nil
	}
	s.cleanup.Stop()
	err := public(s.dev.drv.StreamDestroy(s.handle))
	if e := s.dev.release(); err == nil {
		err = e
	}
	return err
}

// Device returns the stream's device.
func (s *Stream) Device() *Device { return s.dev }

// Handle returns the CUstream, which is also a cudaStream_t.
func (s *Stream) Handle() uintptr { return s.handle }

// Alive returns nil, or an ErrClosed if the stream has been closed.
func (s *Stream) Alive() error { return s.check() }

func (s *Stream) check() error {
	if s == nil {
		return invalid("no stream")
	}
	if s.closed.Load() {
		return ended("the stream", ErrClosed)
	}
	return nil
}

// Synchronize waits until the stream's work is complete.
func (s *Stream) Synchronize() error {
	if err := s.check(); err != nil {
		return err
	}
	return s.dev.withHandle(s.handle, func() error { return s.dev.drv.StreamSynchronize(s.handle) })
}

// Done reports whether the stream's work is complete. It does not wait.
func (s *Stream) Done() (bool, error) {
	if err := s.check(); err != nil {
		return false, err
	}
	var done bool
	err := s.dev.withHandle(s.handle, func() (err error) {
		done, err = s.dev.drv.StreamQuery(s.handle)
		return err
	})
	return done, err
}

// Wait waits until the stream's work is complete or ctx ends. It polls, first often and
// then every millisecond.
func (s *Stream) Wait(ctx context.Context) error { return poll(ctx, s.Done) }

// poll calls done until it returns true or an error, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	var pace wait.Poller
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		pace.Pause()
	}
}

// Capturing reports whether the stream is being captured into a CUDA graph.
func (s *Stream) Capturing() (bool, error) {
	if err := s.check(); err != nil {
		return false, err
	}
	var on bool
	err := s.dev.withHandle(s.handle, func() (err error) {
		on, err = s.dev.drv.StreamCapturing(s.handle)
		return err
	})
	return on, err
}

// WaitEvent makes later work in the stream wait for the event's last Record, also one on
// another device. WaitEvent itself does not wait.
func (s *Stream) WaitEvent(e *Event) error {
	if err := e.check(); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	return s.dev.withHandle(s.handle, func() error { return s.dev.drv.StreamWaitEvent(s.handle, e.handle) })
}

// WaitStream makes later work in the stream wait for the work now in other. WaitStream
// itself does not wait. For repeated use, an Event is cheaper.
func (s *Stream) WaitStream(other *Stream) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := other.check(); err != nil {
		return err
	}
	e, err := other.dev.NewEvent()
	if err != nil {
		return err
	}
	err = e.Record(other)
	if err == nil {
		err = s.WaitEvent(e)
	}
	if e := e.Close(); err == nil {
		err = e
	}
	return err
}

// WaitValue makes later work in the stream wait until the 32-bit number at addr is at
// least value, compared modulo 2^32: the int32 difference is not negative. addr is an
// address in device or pinned memory that the device can access.
//
// While a stream waits, every driver call that synchronizes the context waits too:
// allocating and freeing memory, and making or ending an NCCL communicator. The thread
// that writes the number must not make such a call first.
func (s *Stream) WaitValue(addr uintptr, value uint32) error {
	if addr == 0 || addr%4 != 0 {
		return invalid("address %#x is not a valid address of a 4-byte number", addr)
	}
	if err := s.check(); err != nil {
		return err
	}
	return public(s.dev.drv.StreamWaitValue(&s.dev.bracket, s.handle, addr, value, cudasys.WaitGreaterOrEqual))
}

// WriteValue makes the stream write a 32-bit number to addr, in device or pinned memory,
// after the work that is now in the stream.
func (s *Stream) WriteValue(addr uintptr, value uint32) error {
	if addr == 0 || addr%4 != 0 {
		return invalid("address %#x is not a valid address of a 4-byte number", addr)
	}
	if err := s.check(); err != nil {
		return err
	}
	return public(s.dev.drv.StreamWriteValue(&s.dev.bracket, s.handle, addr, value))
}
