package cuda

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/cudasys"
	"github.com/tutti-go/tutti/internal/wait"
)

// A Stream is a queue of work on a device: in order within the stream, in no
// order with other streams. It may be shared between goroutines; the order of
// what they put in is then theirs.
type Stream struct {
	dev     *Device
	handle  uintptr
	foreign bool
	cleanup runtime.Cleanup

	mu     sync.Mutex // held by Close
	closed atomic.Bool
}

// NewStream makes a stream that does not wait for the legacy default stream. The
// caller closes it.
func (d *Device) NewStream() (*Stream, error) { return d.newStream(0) }

// NewUrgentStream makes a stream whose work goes before that of others. The
// caller closes it.
func (d *Device) NewUrgentStream() (*Stream, error) { return d.newStream(-1) }

func (d *Device) newStream(priority int) (*Stream, error) {
	if err := d.retain(); err != nil {
		return nil, err
	}
	h, err := d.inside(func() (uintptr, error) { return d.drv.StreamCreate(cudasys.StreamNonBlocking, priority) })
	if err != nil {
		return nil, err
	}
	s := &Stream{dev: d, handle: h}
	s.cleanup = watch(s, d, "stream")
	return s, nil
}

// inside makes something with the context current; if that fails, the use that
// was counted for it ends.
func (d *Device) inside(f func() (uintptr, error)) (uintptr, error) {
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

// WrapStream makes a Stream of another library's CUstream or cudaStream_t; 0 is
// the legacy default stream. The stream stays the other library's: Close only
// ends this value.
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

// Close ends the stream; work that is in it is still done. It may be called
// again.
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

// Alive returns an ErrClosed if the stream has been closed.
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

// Synchronize waits until the stream's work is done.
func (s *Stream) Synchronize() error {
	if err := s.check(); err != nil {
		return err
	}
	return s.dev.withHandle(s.handle, func() error { return s.dev.drv.StreamSynchronize(s.handle) })
}

// Done reports whether the stream's work is done, without waiting.
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

// Wait waits until the stream's work is done, or the context ends. It asks again
// and again, first often and then every millisecond.
func (s *Stream) Wait(ctx context.Context) error { return poll(ctx, s.Done) }

// poll asks until the answer is yes.
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

// WaitEvent makes the stream's further work wait for what the event last
// marked, also on another device. The host does not wait.
func (s *Stream) WaitEvent(e *Event) error {
	if err := e.check(); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	return s.dev.withHandle(s.handle, func() error { return s.dev.drv.StreamWaitEvent(s.handle, e.handle) })
}

// WaitStream makes the stream's further work wait for what other holds now. The
// host does not wait. Where that is done often, an Event is cheaper.
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

// WaitValue makes the stream's further work wait until the number at addr, in
// device or pinned memory, is at least value (in the sense that their difference
// as an int32 is not negative). The address must be one that the device can use.
//
// While a stream waits, every driver call that synchronises the context waits for it:
// allocating and freeing memory, and making or ending an NCCL communicator. The number must be
// written by a thread that makes no such call first.
func (s *Stream) WaitValue(addr uintptr, value uint32) error {
	if addr == 0 || addr%4 != 0 {
		return invalid("address %#x is not one of a 4-byte number", addr)
	}
	if err := s.check(); err != nil {
		return err
	}
	return public(s.dev.drv.StreamWaitValue(&s.dev.around, s.handle, addr, value, cudasys.WaitGreaterOrEqual))
}

// WriteValue makes the stream write a number to addr, in device or pinned
// memory, after the work that it holds now.
func (s *Stream) WriteValue(addr uintptr, value uint32) error {
	if addr == 0 || addr%4 != 0 {
		return invalid("address %#x is not one of a 4-byte number", addr)
	}
	if err := s.check(); err != nil {
		return err
	}
	return public(s.dev.drv.StreamWriteValue(&s.dev.around, s.handle, addr, value))
}
