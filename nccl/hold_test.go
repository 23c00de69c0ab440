package nccl_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/nccl"
)

// TestHold checks that only collectives and messages are recorded, and that Flush makes them.
func TestHold(t *testing.T) {
	c := fake(t)
	clean(t)
	for _, cfg := range []nccl.Config{{}, {NonBlocking: true}} {
		w := newWorld(t, 2, cfg)
		calls := func() int { return c.Calls("ncclAllReduce") }
		before := calls()
		for i, comm := range w.comms {
			ok(t, comm.Hold(), w.reduce(i), comm.Hold(), w.reduce(i), w.reduce(i))
		}
		made := 0
		if cfg.NonBlocking {
			made = 6
		}
		if n := calls() - before; n != made {
			t.Errorf("%d calls were made, not %d", n, made)
		}
		for i, comm := range w.comms {
			ok(t, comm.Flush(), comm.Flush(), w.reduce(i))
		}
		if n := calls() - before; n != 8 {
			t.Errorf("%d calls were made, not 8", n)
		}
		for i := range w.comms {
			got := make([]float32, 100)
			ok(t, w.streams[i].Wait(t.Context()), w.slices[i].CopyTo(got))
			if got[0] != 16 || got[99] != 16 {
				t.Errorf("rank %d has %v", i, got[99])
			}
		}
	}
}

// TestHoldOrder checks that calls that are not recorded come after the recorded ones.
func TestHoldOrder(t *testing.T) {
	c := fake(t)
	clean(t)
	w := newWorld(t, 1, nccl.Config{})
	before := c.Calls("ncclAllReduce")
	ok(t, w.comms[0].Hold(), w.reduce(0))
	op, err := w.comms[0].PreMulSum(nccl.Float32, 3)
	ok(t, err)
	if c.Calls("ncclAllReduce") != before+1 {
		t.Error("what was held is still to be made")
	}
	ok(t, w.reduce(0))
	if c.Calls("ncclAllReduce") != before+1 {
		t.Error("Hold has ended")
	}
	if err := w.lib.Group(func() error { return w.reduce(0) }); !errors.Is(err, nccl.ErrInvalid) {
		t.Errorf("in a Group: %v", err)
	}
	ok(t, w.comms[0].FreeOp(op), w.comms[0].Flush())
	if err := w.lib.Group(w.comms[0].Hold); !errors.Is(err, nccl.ErrInvalid) {
		t.Errorf("Hold in a Group: %v", err)
	}
	ok(t, w.streams[0].Wait(t.Context()))
	w.works(t, w.comms)
}

// TestHoldFails makes the second of three calls fail: the third is not made.
func TestHoldFails(t *testing.T) {
	c := fake(t)
	clean(t)
	w := newWorld(t, 1, nccl.Config{})
	before, fired := c.Calls("ncclAllReduce"), c.Fired()
	c.Fail("ncclAllReduce", 2, 3)
	ok(t, w.comms[0].Hold(), w.reduce(0), w.reduce(0), w.reduce(0))
	err := w.comms[0].Flush()
	if e := (*nccl.Error)(nil); !errors.As(err, &e) || e.Func != "ncclAllReduce" || e.Code != 3 {
		t.Errorf("Flush: %v", err)
	}
	if n := c.Calls("ncclAllReduce") - before; n != 2 || c.Fired() == fired {
		t.Errorf("%d calls were made", n)
	}
	ok(t, w.comms[0].Flush(), w.streams[0].Wait(t.Context()))
	w.works(t, w.comms)
}

// TestHoldAborted aborts on one goroutine while another, in Flush, is in NCCL with the first of three calls.
// The other two calls are not made, and Flush and all later calls return ErrAborted.
func TestHoldAborted(t *testing.T) {
	c := fake(t)
	clean(t)
	w := newWorld(t, 1, nccl.Config{})
	before, fired := c.Calls("ncclAllReduce"), c.Fired()
	c.Fail("ncclAllReduce", 1, fakegpu.Hang)
	ok(t, w.comms[0].Hold(), w.reduce(0), w.reduce(0), w.reduce(0))
	flushed := make(chan error)
	go func() { flushed <- w.comms[0].Flush() }()
	for c.Fired() == fired {
		time.Sleep(time.Millisecond)
	}
	aborted := make(chan error)
	go func() { aborted <- w.comms[0].Abort(t.Context()) }()
	for !errors.Is(w.comms[0].AsyncError(), nccl.ErrAborted) {
		time.Sleep(time.Millisecond)
	}
	c.Release()
	if err := <-flushed; !errors.Is(err, nccl.ErrAborted) {
		t.Errorf("Flush: %v", err)
	}
	ok(t, <-aborted)
	if n := c.Calls("ncclAllReduce") - before; n != 1 {
		t.Errorf("%d calls were made", n)
	}
	for _, err := range []error{w.comms[0].Hold(), w.comms[0].Flush(), w.reduce(0)} {
		if !errors.Is(err, nccl.ErrAborted) {
			t.Errorf("after Abort: %v", err)
		}
	}
}
