package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/fakegpu"
)

// A submitter submits operations to one engine and records the calls of their functions.
type submitter struct {
	e    *Engine
	mu   sync.Mutex
	seq  uint64    // number of the last submitted operation; belongs to the rank's goroutine
	last uint64    // number of the last operation that was begun; guarded by mu
	errs []error   // results of the complete operations, in order; guarded by mu
	more sync.Cond // signals changes of errs; its lock is mu
}

func newSubmitter(e *Engine) *submitter {
	s := &submitter{e: e}
	s.more.L = &s.mu
	return s
}

// op returns an operation for Submit. Its Done fails the operation if Begun was not called for it or a later
// one, and records numbers and errors of all operations that it reports. The engine's goroutines call both; s.mu guards the records.
func (s *submitter) op(ctx context.Context, calls []engine.Call) *engine.DeviceOp {
	s.seq++
	seq := s.seq
	op := &engine.DeviceOp{Ctx: ctx, Seq: seq, Calls: calls}
	op.Begun = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last = seq
	}
	op.Done = func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.last < seq {
			err = errors.Join(err, fmt.Errorf("operation %d is complete and was not begun", seq))
		}
		reported := uint64(len(s.errs))
		if reported >= seq {
			err = errors.Join(err, fmt.Errorf("operation %d is reported after operation %d", seq, reported))
			s.errs[reported-1] = err
		}
		for ; reported < seq; reported++ {
			s.errs = append(s.errs, err)
		}
		s.more.Signal()
	}
	return op
}

// wait waits until all submitted operations are complete.
func (s *submitter) wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uint64(len(s.errs)) < s.seq {
		s.more.Wait()
	}
}

// onRanks runs a program on two ranks, each on a goroutine with its own engine and 100 elements of device
// memory. It closes the engines and reports all errors.
func onRanks(t *testing.T, program func(s *submitter, x *cuda.Slice[float32]) error) {
	t.Helper()
	engines := newEngines(t, 2, engine.DeviceOptions{})
	errs := make([]error, len(engines))
	var ranks sync.WaitGroup
	for r, e := range engines {
		ranks.Go(func() {
			x, err := cuda.Alloc[float32](e.dev, 100)
			if err == nil {
				err = x.Fill(1)
			}
			if err == nil {
				err = program(newSubmitter(e), x)
			}
			errs[r] = errors.Join(err, x.Free(), e.Close())
		})
	}
	ranks.Wait()
	ok(t, errs...)
}

// maxOf returns an AllReduce of x with the operator Max, so that any number of operations leaves x as it is.
func maxOf(e *Engine, x *cuda.Slice[float32]) []engine.Call {
	calls := sum(e, x)
	calls[0].ReduceOp = engine.Max
	return calls
}

// TestSubmit submits more operations than the device has at once, some of them awaited, and then runs one
// with Run. Submit does not wait, and the completion goroutine reports each once and in order, without an
// error.
func TestSubmit(t *testing.T) {
	clean(t)
	const burst = 3*maxInflight + 10
	onRanks(t, func(s *submitter, x *cuda.Slice[float32]) error {
		for round := range 3 {
			for i := range burst {
				op := s.op(t.Context(), maxOf(s.e, x))
				s.e.Submit(op)
				if i%100 == 50 {
					s.e.Await(op.Seq, 1)
					defer s.e.Await(op.Seq, -1)
				}
			}
			s.e.Await(s.seq, 0)
			s.wait()
			if i := slices.IndexFunc(s.errs, func(err error) bool { return err != nil }); i >= 0 {
				return fmt.Errorf("round %d: operation %d: %w", round, i+1, s.errs[i])
			}
			s.seq++ // Run takes a number, too
			s.errs = append(s.errs, nil)
			if err := s.e.Run(t.Context(), s.seq, maxOf(s.e, x)); err != nil {
				return err
			}
		}
		return holds(x, 1)
	})
}

// TestSubmitOnCaller checks that Submit launches an operation with a stream on the calling goroutine only if
// one like it has succeeded, and that Launched is called before Done. The channel wait orders the functions
// with the test.
func TestSubmitOnCaller(t *testing.T) {
	clean(t)
	onRanks(t, func(s *submitter, x *cuda.Slice[float32]) error {
		stream, err := s.e.dev.NewStream()
		if err != nil {
			return err
		}
		for i := range 10 {
			op := s.op(t.Context(), maxOf(s.e, x))
			var launched, order bool
			done := op.Done
			wait := make(chan struct{})
			op.Stream, op.OnCaller = stream, true
			op.Launched = func() { launched = true; close(wait) }
			op.Done = func(err error) { order = launched; done(err) }
			s.e.Submit(op)
			if i > 0 {
				select {
				case <-wait:
				default:
					return fmt.Errorf("operation %d: Submit returned before the launch", i)
				}
			}
			<-wait
			s.wait()
			if err := s.errs[i]; err != nil || !order {
				return fmt.Errorf("operation %d: launched before Done: %v: %w", i, order, err)
			}
		}
		return errors.Join(stream.Wait(t.Context()), stream.Close(), holds(x, 1))
	})
}

// TestSubmitFails lets the first operation hang and cancels, on rank 1, the context of one that waits behind
// it. Done gets ErrAborted for all operations on both ranks, and the group's failure names the cancelled one.
func TestSubmitFails(t *testing.T) {
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	clean(t)
	t.Cleanup(control.Reset)
	control.Fail(fakegpu.Kernel, 1, fakegpu.Hang)
	onRanks(t, func(s *submitter, x *cuda.Slice[float32]) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 20 {
			switch i {
			case 10:
				s.e.Submit(s.op(ctx, maxOf(s.e, x)))
			default:
				s.e.Submit(s.op(t.Context(), maxOf(s.e, x)))
			}
		}
		if s.e.Rank() == 1 {
			time.Sleep(5 * time.Millisecond)
			cancel()
		}
		s.wait()
		for i, err := range s.errs {
			if !errors.Is(err, engine.ErrAborted) {
				return fmt.Errorf("rank %d: operation %d: %w", s.e.Rank(), i+1, err)
			}
		}
		if f := s.e.Failure(); f.Rank != 1 || f.Seq != 11 || f.Wait.Phase != engine.Queued {
			return fmt.Errorf("the group failed by %w", f)
		}
		return nil
	})
}

// TestSubmitDoesNotAllocate checks that a warm pipeline does not allocate. Done runs on the completion
// goroutine and passes its error through a channel.
func TestSubmitDoesNotAllocate(t *testing.T) {
	clean(t)
	engines := newEngines(t, 1, engine.DeviceOptions{})
	e := engines[0]
	x, err := cuda.Alloc[float32](e.dev, 100)
	ok(t, err)
	done := make(chan error, 1)
	op := &engine.DeviceOp{Ctx: t.Context(), Calls: maxOf(e, x), Begun: func() {}, Done: func(err error) { done <- err }}
	round := func() {
		op.Seq++
		e.Submit(op)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for range 100 {
		round()
	}
	if n := testing.AllocsPerRun(200, round); n >= 1 {
		t.Errorf("%v allocations for each operation", n)
	}
	ok(t, x.Free(), e.Close())
}
