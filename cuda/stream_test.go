package cuda_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/cudasys"
	"github.com/tutti-go/tutti/internal/race"
)

// ordered holds a fill back on one stream until the host writes a value, and reads the
// memory on another stream, with or without an event between the two.
func ordered(t *testing.T, events bool) int32 {
	d := open(t, 0)
	compute := closing(t, must(d.NewStream())(t), nil)
	reader := closing(t, must(d.NewUrgentStream())(t), nil)
	gate, err := cuda.AllocHost[uint32](d, 1)
	freeing(t, gate, err)
	s, err := cuda.Alloc[int32](d, 100)
	freeing(t, s, err)
	got, err := cuda.AllocHost[int32](d, 100)
	freeing(t, got, err)
	ok(t, s.Fill(1))

	ok(t, compute.WaitValue(must(gate.DevicePointer())(t), 1), s.FillOn(compute, 2))
	if events {
		ok(t, reader.WaitStream(compute))
	}
	ok(t, s.CopyToOn(reader, got.Data()))
	if !events {
		ok(t, reader.Synchronize())
	}
	if must(compute.Done())(t) {
		t.Error("the fill was not held back")
	}
	atomic.StoreUint32(&gate.Data()[0], 1)
	ok(t, compute.Synchronize(), reader.Synchronize())
	return got.Data()[99]
}

func TestEventsOrderStreams(t *testing.T) {
	for range 20 {
		if v := ordered(t, true); v != 2 {
			t.Fatalf("with events it read %d", v)
		}
	}
	if v := ordered(t, false); v != 1 {
		t.Errorf("without events it read %d: this test cannot fail", v)
	}
}

func TestWriteValue(t *testing.T) {
	d := open(t, 0)
	st := closing(t, must(d.NewStream())(t), nil)
	word, err := cuda.AllocHost[uint32](d, 1)
	freeing(t, word, err)
	ok(t, st.WriteValue(must(word.DevicePointer())(t), 77), st.Synchronize())
	if v := atomic.LoadUint32(&word.Data()[0]); v != 77 {
		t.Errorf("holds %d", v)
	}
}

// TestWaitGivesUp waits for a stream and an event that a word of host memory holds back: both waits end with
// the context. After the word is set, the same waits succeed.
func TestWaitGivesUp(t *testing.T) {
	d := open(t, 0)
	st := closing(t, must(d.NewStream())(t), nil)
	ev := closing(t, must(d.NewEvent())(t), nil)
	gate, err := cuda.AllocHost[uint32](d, 1)
	freeing(t, gate, err)
	if !must(ev.Done())(t) {
		t.Error("an event that was never recorded is not done")
	}
	ok(t, st.WaitValue(must(gate.DevicePointer())(t), 1), ev.Record(st))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := st.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for the stream: %v", err)
	}
	if err := ev.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for the event: %v", err)
	}
	if must(ev.Done())(t) || must(st.Done())(t) {
		t.Error("done")
	}
	atomic.StoreUint32(&gate.Data()[0], 1)
	ok(t, st.Wait(t.Context()), ev.Wait(t.Context()), ev.Synchronize())
}

func TestTimer(t *testing.T) {
	d := open(t, 0)
	st := closing(t, must(d.NewStream())(t), nil)
	from := closing(t, must(d.NewTimer())(t), nil)
	to := closing(t, must(d.NewTimer())(t), nil)
	s, err := cuda.Alloc[int8](d, 1<<20)
	freeing(t, s, err)
	ok(t, from.Record(st), s.FillOn(st, 1), to.Record(st), to.Synchronize())
	if e := must(to.Since(from))(t); e < 0 || e > time.Minute {
		t.Errorf("took %v", e)
	}
}

// TestWrapStream uses a foreign stream and the legacy stream. Close ends only the wrapper, and a stream of
// another device is refused.
func TestWrapStream(t *testing.T) {
	d := open(t, 0)
	st := closing(t, must(d.NewStream())(t), nil)
	w := must(d.WrapStream(st.Handle()))(t)
	s, err := cuda.Alloc[int8](d, 10)
	freeing(t, s, err)
	ok(t, s.FillOn(w, 1), w.Synchronize(), w.Close(), w.Close())
	if err := s.FillOn(w, 1); !errors.Is(err, cuda.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	ok(t, s.FillOn(st, 1), st.Synchronize()) // the wrapped stream is still open
	legacy := must(d.WrapStream(0))(t)
	ok(t, s.FillOn(legacy, 2), legacy.Synchronize())

	other := open(t, 1)
	if _, err := other.WrapStream(st.Handle()); !errors.Is(err, cuda.ErrInvalid) {
		t.Errorf("another device's stream: %v", err)
	}
}

// TestCapturing checks that Capturing is true exactly while a stream is captured into a graph.
func TestCapturing(t *testing.T) {
	d := open(t, 0)
	st := closing(t, must(d.NewStream())(t), nil)
	if must(st.Capturing())(t) {
		t.Error("a new stream is being captured")
	}
	drv := must(cudasys.Load())(t)
	ok(t, d.Do(func() error {
		if err := drv.StreamBeginCapture(st.Handle()); err != nil {
			return err
		}
		on, err := st.Capturing()
		if !on {
			t.Error("a captured stream is not")
		}
		graph, e := drv.StreamEndCapture(st.Handle())
		if e == nil {
			e = drv.GraphDestroy(graph)
		}
		return errors.Join(err, e)
	}))
}

// TestStrictDriver runs on a driver that needs a current context for stream calls: after
// the first refusal every call has one.
func TestStrictDriver(t *testing.T) {
	c, d := fake(t), open(t, 0)
	st := closing(t, must(d.NewStream())(t), nil)
	ev := closing(t, must(d.NewEvent())(t), nil)
	pushes := func() int { return c.Calls("cuCtxPushCurrent_v2") }
	before := pushes()
	ok(t, ev.Record(st), st.WaitEvent(ev))
	if n := pushes() - before; n != 0 {
		t.Errorf("a context was made current %d times for nothing", n)
	}
	fired := c.Fired()
	c.Fail("cuStreamWaitEvent", 1, 201)
	ok(t, st.WaitEvent(ev), ev.Record(st), st.Synchronize())
	if n := pushes() - before; n != 3 || c.Fired() != fired+1 {
		t.Errorf("a context was made current %d times, not 3", n)
	}
}

// TestOrderingDoesNotAllocate checks that Record, WaitEvent and Done allocate nothing.
func TestOrderingDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector pools drop what they are given")
	}
	d := open(t, 0)
	a := closing(t, must(d.NewStream())(t), nil)
	b := closing(t, must(d.NewStream())(t), nil)
	ev := closing(t, must(d.NewEvent())(t), nil)
	n := testing.AllocsPerRun(200, func() {
		if ev.Record(a) != nil || b.WaitEvent(ev) != nil {
			t.Error("failed")
		}
		if _, err := ev.Done(); err != nil {
			t.Error(err)
		}
	})
	ok(t, a.Synchronize(), b.Synchronize())
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
