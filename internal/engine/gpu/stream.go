package gpu

import (
	"errors"
	"fmt"
	"sync"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
)

// Two events order an operation with a caller's stream. The engine's stream waits for an event
// recorded in the caller's stream, and the caller's stream waits for the event recorded after the
// operation. Each is recorded before a stream waits for it, and only when all ranks have agreed. No
// stream ever waits for the host: such a stream would block every driver call that synchronizes
// the context, such as NCCL's init and abort.

// AdmitStream returns an error if stream is not an open *cuda.Stream of the engine's device,
// or is being captured.
func (e *Engine) AdmitStream(stream any) error {
	s, ok := stream.(*cuda.Stream)
	if !ok || s == nil {
		return fmt.Errorf("%w: the stream is a %T, not a *cuda.Stream", engine.ErrInvalid, stream)
	}
	if err := s.Alive(); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrInvalid, err)
	}
	if s.Device().Ordinal() != e.dev.Ordinal() {
		return fmt.Errorf("%w: the stream is on %v, the Comm on %v", engine.ErrInvalid, s.Device(), e.dev)
	}
	if capturing, err := s.Capturing(); err != nil {
		return fmt.Errorf("%w: %w", engine.ErrInvalid, err)
	} else if capturing {
		return fmt.Errorf("%w: the stream is being captured into a CUDA graph; end the capture first", engine.ErrUnsupported)
	}
	return nil
}

// followStream makes the engine's stream wait for the work that the caller's stream holds now.
func (o *operation) followStream() error {
	if o.stream == nil {
		return nil
	}
	return first(o.e.entry.Record(o.stream), o.e.stream.WaitEvent(o.e.entry))
}

// holdStream makes the caller's stream wait for an event recorded after the operation.
func (o *operation) holdStream(event *cuda.Event) error {
	if o.stream == nil {
		return nil
	}
	return o.stream.WaitEvent(event)
}

// eventPool keeps events for reuse. It is safe for concurrent use.
type eventPool struct {
	dev    *cuda.Device
	mu     sync.Mutex
	list   []*cuda.Event // for reuse; guarded by mu
	closed bool          // guarded by mu
}

// get returns an event; put returns it to the pool.
func (p *eventPool) get() (*cuda.Event, error) {
	p.mu.Lock()
	if n := len(p.list); n > 0 {
		ev := p.list[n-1]
		p.list = p.list[:n-1]
		p.mu.Unlock()
		return ev, nil
	}
	p.mu.Unlock()
	return p.dev.NewEvent()
}

func (p *eventPool) put(ev *cuda.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = ev.Close() // the goroutine returned from the driver after Close
		return
	}
	p.list = append(p.list, ev)
}

// close closes the events that are in the pool.
func (p *eventPool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, ev := range p.list {
		errs = append(errs, ev.Close())
	}
	p.list, p.closed = nil, true
	return errors.Join(errs...)
}
