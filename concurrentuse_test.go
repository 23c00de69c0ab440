package tutti_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// awaitFirstOperation waits until a rank has begun its first operation.
func awaitFirstOperation(c *tutti.Comm) {
	for len(c.Stats().Ops) == 0 {
		runtime.Gosched()
	}
}

// TestShrinkDuringOperation calls Shrink on rank 1 while another goroutine of that
// rank is in an operation. Shrink ends the operation. Rank 0 has completed it, but
// it must not count as completed.
func TestShrinkDuringOperation(t *testing.T) {
	for range 20 {
		comms := local(t, 3, tutti.Config{})
		completed := make(chan struct{})
		all(t, comms, func(ctx context.Context, c *tutti.Comm) error {
			reduce := func() error {
				return c.Reduce(ctx, tutti.Of([]int{0}), tutti.Of([]int{1}), tutti.Sum, 1)
			}
			switch c.Rank() {
			case 0:
				if err := reduce(); err != nil {
					return err
				}
				close(completed)
				<-c.Done()
			case 1:
				failed := make(chan error, 1)
				go func() { failed <- reduce() }()
				awaitFirstOperation(c)
				<-completed
				defer func() {
					if err := <-failed; !errors.Is(err, tutti.ErrRevoked) {
						t.Errorf("the operation: %v", err)
					}
				}()
			case 2:
				<-c.Done()
				if err := c.Close(); !errors.Is(err, tutti.ErrRevoked) {
					t.Errorf("Close: %v", err)
				}
				return nil
			}
			next, done, err := c.Shrink(ctx)
			if err != nil {
				return err
			}
			if done != 0 {
				t.Errorf("rank %d: %d operations were done", c.Rank(), done)
			}
			return next.Close()
		})
	}
}

// TestAbortWhileClosing has a goroutine in Close wait for an operation that no other rank joins. Abort fails
// the operation with ErrRevoked and lets Close return nil.
func TestAbortWhileClosing(t *testing.T) {
	c := local(t, 2, tutti.Config{Timeout: -1})[0]
	w, err := c.Batch().Barrier().Start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	for !errors.Is(c.Err(), tutti.ErrClosed) {
		runtime.Gosched()
	}
	c.Abort(nil)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := w.Wait(ctx); !errors.Is(err, tutti.ErrRevoked) {
		t.Fatalf("the operation: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// An observingDevice wraps rank 0's engine. It delays calls outside of operations,
// and checks whether the engine is closed meanwhile.
type observingDevice struct {
	engine.Engine
	hold   chan struct{} // delayed calls continue when it is closed
	inside atomic.Bool
	early  atomic.Bool
}

func (s *observingDevice) Attach(e engine.Engine, _ engine.DeviceOptions) (engine.Engine, error) {
	if e.Rank() != 0 {
		return e, nil
	}
	s.Engine = e
	return s, nil
}

func (s *observingDevice) hang() {
	s.inside.Store(true)
	<-s.hold
	s.inside.Store(false)
}

func (s *observingDevice) MarkWaits(*wait.FirstWait) {}

func (s *observingDevice) Behind() []int {
	s.hang()
	return nil
}

func (s *observingDevice) Sub(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
	s.hang()
	return s.Engine.Sub(ctx, seq, members)
}

func (s *observingDevice) Alloc(ctx context.Context, seq uint64, bytes int) (*engine.Region, error) {
	s.hang()
	return s.Engine.Alloc(ctx, seq, bytes)
}

func (s *observingDevice) Close() error {
	if s.inside.Load() {
		s.early.Store(true)
	}
	return s.Engine.Close()
}

// TestCloseWaits closes a Comm while another goroutine uses its engine outside of operations. Close must
// wait: between processes, the memory in use would be unmapped. observingDevice holds that goroutine until
// the test closes hold, and sets early if the engine is closed before.
func TestCloseWaits(t *testing.T) {
	dup := func(ctx context.Context, c *tutti.Comm) error {
		next, err := c.Dup(ctx)
		return errors.Join(err, next.Close())
	}
	alloc := func(ctx context.Context, c *tutti.Comm) error {
		m, err := tutti.Alloc[int](ctx, c, 8)
		if err != nil {
			return err
		}
		return m.Free()
	}
	dump := func(ctx context.Context, c *tutti.Comm) error {
		w, err := c.Batch().Barrier().Start(ctx)
		if c.Rank() == 0 {
			err = errors.Join(err, c.Dump(io.Discard))
		}
		return errors.Join(err, w.Wait(ctx))
	}
	for name, use := range map[string]func(context.Context, *tutti.Comm) error{"Dup": dup, "Alloc": alloc, "Dump": dump} {
		t.Run(name, func(t *testing.T) {
			s := &observingDevice{hold: make(chan struct{})}
			comms := local(t, 2, tutti.Config{Device: s})
			used := make(chan error, 2)
			go func() { used <- use(t.Context(), comms[0]) }()
			if name != "Dump" {
				go func() { used <- use(t.Context(), comms[1]) }()
			}
			for !s.inside.Load() {
				runtime.Gosched()
			}
			if name == "Dump" { // the operation that the dump shows must end
				used <- use(t.Context(), comms[1])
			}
			closed := make(chan error, 1)
			go func() { closed <- comms[0].Close() }()
			for !errors.Is(comms[0].Err(), tutti.ErrClosed) {
				runtime.Gosched()
			}
			for range 10_000 { // without the wait, Close could return now
				runtime.Gosched()
			}
			close(s.hold)
			for _, c := range []chan error{used, used, closed} {
				if err := <-c; err != nil {
					t.Error(err)
				}
			}
			if s.early.Load() {
				t.Error("the engine was closed while it was in use")
			}
		})
	}
}
