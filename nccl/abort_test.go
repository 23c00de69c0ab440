package nccl_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/nccl"
)

// TestAbort aborts a collective that waits for a rank that never comes, from four goroutines, on blocking and
// nonblocking communicators. Later calls return ErrAborted, and the process can make new communicators.
func TestAbort(t *testing.T) {
	fake(t)
	clean(t)
	for _, cfg := range []nccl.Config{{}, {NonBlocking: true}} {
		w := newWorld(t, 2, cfg)
		ok(t, w.reduce(0))
		if done, err := w.streams[0].Done(); done || err != nil {
			t.Fatal("the collective did not wait for the other rank", err)
		}
		handle := w.comms[0].AbortHandle()
		errs := make(chan error)
		for range 4 {
			go func() { errs <- handle.Abort(t.Context()) }()
		}
		for range 4 {
			ok(t, <-errs)
		}
		ok(t, w.streams[0].Wait(t.Context()))
		if err := w.reduce(0); !errors.Is(err, nccl.ErrAborted) {
			t.Errorf("after Abort: %v", err)
		}
		if err := w.comms[0].AsyncError(); !errors.Is(err, nccl.ErrAborted) {
			t.Errorf("after Abort: %v", err)
		}
		ok(t, w.comms[0].Close(), handle.Abort(t.Context()), w.comms[1].Abort(t.Context()))
		w.works(t, w.init(t, cfg))
	}
}

// TestCloseAndAbort calls Close, Abort and AsyncError of each communicator from four goroutines at the same
// time. The handle is freed exactly once, and no call fails.
func TestCloseAndAbort(t *testing.T) {
	c := fake(t)
	clean(t)
	w := newWorld(t, 2, nccl.Config{})
	freed := func() int { return c.Calls("ncclCommDestroy") + c.Calls("ncclCommAbort") }
	for range 30 {
		comms := w.init(t, nccl.Config{})
		before := freed()
		var all sync.WaitGroup
		for _, comm := range comms {
			h := comm.AbortHandle()
			all.Go(func() { ok(t, comm.Close()) })
			all.Go(func() { ok(t, h.Abort(t.Context())) })
			all.Go(func() { _ = comm.AsyncError() })
			all.Go(func() { ok(t, comm.Close()) })
		}
		all.Wait()
		if n := freed() - before; n != len(comms) {
			t.Fatalf("%d handles were freed %d times", len(comms), n)
		}
	}
	w.works(t, w.comms)
}

// TestAbortWaitsForCalls calls Abort while a call hangs in NCCL. The abort starts only after the call
// has returned. After abortGrace it may start earlier, and a busy machine may take that long to reach
// the next line.
func TestAbortWaitsForCalls(t *testing.T) {
	c := fake(t)
	clean(t)
	for range 20 {
		if abortWaits(t, c) {
			return
		}
	}
	t.Error("in 20 tries the first Abort took a second, or the machine did")
}

// abortWaits aborts a communicator while a goroutine hangs in ncclAllReduce. Abort gives up at the end of its
// context with ErrBusy, and NCCL is not called meanwhile; it aborts once the call has returned. It reports
// whether all steps happened within abortGrace; the caller repeats it otherwise.
func abortWaits(t *testing.T, c *fakegpu.Control) bool {
	w := newWorld(t, 2, nccl.Config{})
	fired, aborts := c.Fired(), c.Calls("ncclCommAbort")
	c.Fail("ncclAllReduce", 1, fakegpu.Hang)
	call := make(chan error)
	go func() { call <- w.reduce(0) }()
	for c.Fired() == fired {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	begin := time.Now()
	early := w.comms[0].Abort(ctx)
	under := c.Calls("ncclCommAbort") - aborts
	c.Release()
	late := time.Since(begin) >= time.Second
	called := <-call
	ok(t, w.comms[0].Abort(t.Context()), w.streams[0].Wait(t.Context()))
	if n := c.Calls("ncclCommAbort") - aborts; n != 1 {
		t.Errorf("it aborted %d times", n)
	}
	if late {
		ok(t, w.comms[1].Abort(t.Context()))
		return false
	}
	if !errors.Is(early, nccl.ErrBusy) || !errors.Is(early, context.DeadlineExceeded) {
		t.Errorf("while a call hangs: %v", early)
	}
	if under != 0 {
		t.Error("it aborted under the call")
	}
	ok(t, called)
	return true
}

// TestAbortOfStuckCall calls Abort while a call waits in NCCL forever. After abortGrace it aborts during
// the call, because nothing else would end it. It does not do so while a group is still open, which
// would use the communicator later.
func TestAbortOfStuckCall(t *testing.T) {
	c := fake(t)
	clean(t)
	for _, what := range []string{"call", "group"} {
		w := newWorld(t, 2, nccl.Config{})
		fired, aborts := c.Fired(), c.Calls("ncclCommAbort")
		call := make(chan error)
		if what == "call" {
			c.Fail("ncclAllReduce", 1, fakegpu.Hang)
			go func() { call <- w.reduce(0) }()
		} else {
			open, end := make(chan struct{}), make(chan struct{})
			go func() {
				call <- w.lib.Group(func() error {
					err := w.reduce(0)
					close(open)
					<-end
					return err
				})
			}()
			<-open
			ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
			if err := w.comms[0].Abort(ctx); !errors.Is(err, nccl.ErrBusy) {
				t.Errorf("while a group is open: %v", err)
			}
			cancel()
			if n := c.Calls("ncclCommAbort") - aborts; n != 0 {
				t.Error("it aborted under the group")
			}
			c.Fail("ncclGroupEnd", 1, fakegpu.Hang)
			close(end)
		}
		for c.Fired() == fired {
			time.Sleep(time.Millisecond)
		}
		ok(t, w.comms[0].Abort(t.Context()))
		if n := c.Calls("ncclCommAbort") - aborts; n != 1 {
			t.Errorf("it aborted %d times", n)
		}
		c.Release()
		<-call
		ok(t, w.comms[1].Abort(t.Context()), w.streams[0].Wait(t.Context()))
	}
}

// TestAbortHangs makes ncclCommAbort hang. AbortAll returns ErrStarted when its context ends; the abort's
// goroutine stays in NCCL and completes after Release.
func TestAbortHangs(t *testing.T) {
	c := fake(t)
	clean(t)
	w := newWorld(t, 2, nccl.Config{})
	fired := c.Fired()
	c.Fail("ncclCommAbort", 1, fakegpu.Hang)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := nccl.AbortAll(ctx, w.comms...); !errors.Is(err, nccl.ErrStarted) {
		t.Errorf("a hanging abort: %v", err)
	}
	for c.Fired() == fired { // the abort's goroutine may reach it later
		time.Sleep(time.Millisecond)
	}
	c.Release()
	ok(t, nccl.AbortAll(t.Context(), w.comms...))
}

// TestAsyncError makes a collective fail on the device: AsyncError and the next call return the error, Close
// aborts the communicator, and the process can make new ones.
func TestAsyncError(t *testing.T) {
	c := fake(t)
	clean(t)
	w := newWorld(t, 2, nccl.Config{})
	fired, aborts := c.Fired(), c.Calls("ncclCommAbort")
	c.Fail(fakegpu.Kernel, 1, 6)
	ok(t, w.reduce(0))
	for c.Fired() == fired {
		time.Sleep(time.Millisecond)
	}
	var err error
	for err == nil {
		err = w.comms[0].AsyncError()
	}
	if !errors.Is(err, nccl.ErrRemote) {
		t.Errorf("the error is %v", err)
	}
	if err := w.reduce(0); !errors.Is(err, nccl.ErrRemote) {
		t.Errorf("the next call says %v", err)
	}
	ok(t, w.comms[0].Close(), w.streams[0].Wait(t.Context()))
	if n := c.Calls("ncclCommAbort") - aborts; n != 1 {
		t.Errorf("it aborted %d times", n)
	}
	ok(t, w.comms[1].Abort(t.Context()))
	w.works(t, w.init(t, nccl.Config{}))
}

// TestMismatch makes ranks call different operations, which the fake GPU reports as an asynchronous error of
// one of them. Both communicators can be aborted.
func TestMismatch(t *testing.T) {
	fake(t)
	clean(t)
	w := newWorld(t, 2, nccl.Config{})
	ok(t, w.reduce(0))
	b := nccl.Of(w.slices[1])
	ok(t, w.comms[1].AllReduce(b, b, nccl.Max, w.streams[1]))
	var err error
	for err == nil { // one of the ranks sees the error
		err = errors.Join(w.comms[0].AsyncError(), w.comms[1].AsyncError())
	}
	if !strings.Contains(err.Error(), "called something else") {
		t.Error(err)
	}
	ok(t, nccl.AbortAll(t.Context(), w.comms...))
}

// TestAbortWhileSplitting aborts communicators while a goroutine of each rank makes a child from them, after
// various times. Split returns a child or an error, and in the end no child is left.
func TestAbortWhileSplitting(t *testing.T) {
	c := fake(t)
	before := c.AllLive()
	t.Cleanup(func() { gone(t, func() bool { return !c.Left(before) }) }) // runs after everything else is freed
	for i := range 40 {
		w := newWorld(t, 2, nccl.Config{NonBlocking: true})
		var all sync.WaitGroup
		for _, comm := range w.comms {
			all.Go(func() {
				child, err := comm.Split(t.Context(), 0, 0, nccl.Config{})
				if err == nil {
					err = child.Abort(t.Context())
				} else if !errors.Is(err, nccl.ErrAborted) && !errors.Is(err, nccl.ErrRemote) && !errors.As(err, new(*nccl.Error)) {
					t.Errorf("it ends with %v", err)
					return
				} else {
					err = nil
				}
				ok(t, err)
			})
		}
		time.Sleep(time.Duration(i) * 100 * time.Microsecond)
		ok(t, nccl.AbortAll(t.Context(), w.comms...))
		all.Wait()
	}
}
