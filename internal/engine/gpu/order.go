package gpu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
)

// A gate is where callers' streams wait for operations that were put in order
// with them. An operation may be started long before its turn comes, and an
// event that has not been recorded yet holds up nobody; so they wait for a
// number in host memory, which the engine's stream writes behind each operation.
type gate struct {
	dev  *cuda.Device
	word *cuda.HostSlice[uint32]
	addr uintptr

	mu      sync.Mutex
	issued  uint32
	events  []*cuda.Event // for reuse, as are the next
	tickets []*engine.Ticket
	last    *cuda.Stream          // the one that has been put in order last
	streams map[*cuda.Stream]bool // all of them, but for some that are closed
	tidied  int                   // how many were left when those were last looked for
}

func newGate(dev *cuda.Device) (*gate, error) {
	word, err := cuda.AllocHost[uint32](dev, 1)
	if err != nil {
		return nil, err
	}
	addr, err := word.DevicePointer()
	if err != nil {
		return nil, errors.Join(err, word.Free())
	}
	return &gate{dev: dev, word: word, addr: addr, streams: map[*cuda.Stream]bool{}}, nil
}

// linger is how long streams that wait for nothing any more may take to notice.
const linger = time.Second

// close frees the word. Streams may still have to look at it: it waits for those
// that their owners have not closed.
func (g *gate) close() error {
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), linger)
	defer cancel()
	for s := range g.streams {
		_ = s.Wait(ctx) // its errors, and that it is closed, are its owner's to know
	}
	for _, e := range g.events {
		errs = append(errs, e.Close())
	}
	for _, t := range g.tickets {
		errs = append(errs, t.Ready.(*cuda.Event).Close())
	}
	return errors.Join(append(errs, g.word.Free())...)
}

// release lets all streams go on that wait for operations up to now. None of
// them will write to the word any more.
func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	atomic.StoreUint32(&g.word.Data()[0], g.issued)
}

func (g *gate) event() (*cuda.Event, error) {
	if n := len(g.events); n > 0 {
		ev := g.events[n-1]
		g.events = g.events[:n-1]
		return ev, nil
	}
	return g.dev.NewEvent()
}

// take returns an event, which put gives back.
func (g *gate) take() (*cuda.Event, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.event()
}

// put gives an event back.
func (g *gate) put(ev *cuda.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.events = append(g.events, ev)
}

// ticket returns one with an event; mu is held.
func (g *gate) ticket() (*engine.Ticket, error) {
	if n := len(g.tickets); n > 0 {
		t := g.tickets[n-1]
		g.tickets = g.tickets[:n-1]
		return t, nil
	}
	ev, err := g.event()
	return &engine.Ticket{Ready: ev}, err
}

// back takes a ticket back.
func (g *gate) back(t *engine.Ticket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tickets = append(g.tickets, t)
}

// enter lets a stream wait for the next operation, which is to wait for what the
// stream holds before.
func (g *gate) enter(s *cuda.Stream) (*engine.Ticket, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, err := g.ticket()
	if err != nil {
		return nil, err
	}
	if err = t.Ready.(*cuda.Event).Record(s); err == nil {
		err = s.WaitValue(g.addr, g.issued+1)
	}
	if err != nil {
		g.tickets = append(g.tickets, t)
		return nil, err
	}
	g.issued++
	t.Number = g.issued
	if s != g.last {
		g.last, g.streams[s] = s, true
		g.tidy()
	}
	return t, nil
}

// keepStreams is how many closed streams may be remembered, beside as many as
// there are open ones.
const keepStreams = 64

// tidy forgets streams that their owners have closed, now and then: a program may
// make one for each step. mu is held.
func (g *gate) tidy() {
	if len(g.streams) <= keepStreams+2*g.tidied {
		return
	}
	maps.DeleteFunc(g.streams, func(s *cuda.Stream, _ bool) bool { return s.Alive() != nil })
	g.tidied = len(g.streams)
}

// Order puts an operation in order with a *cuda.Stream.
func (e *Engine) Order(stream any) (*engine.Ticket, error) {
	s, ok := stream.(*cuda.Stream)
	if !ok || s == nil {
		return nil, fmt.Errorf("%w: the stream is a %T, not a *cuda.Stream", engine.ErrInvalid, stream)
	}
	if err := s.Alive(); err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrInvalid, err)
	}
	if s.Device().Ordinal() != e.dev.Ordinal() {
		return nil, fmt.Errorf("%w: the stream is on %v, the Comm on %v", engine.ErrInvalid, s.Device(), e.dev)
	}
	if capturing, err := s.Capturing(); err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrInvalid, err)
	} else if capturing {
		return nil, fmt.Errorf("%w: the stream is being captured into a CUDA graph; end the capture first", engine.ErrUnsupported)
	}
	t, err := e.gate.enter(s)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrUnsupported, err)
	}
	return t, nil
}
