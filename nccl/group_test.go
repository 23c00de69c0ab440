package nccl_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/nccl"
)

// TestGroupIsNeverLeftOpen makes groups fail in every way. None of their operations starts, and the next
// operation is not part of them.
func TestGroupIsNeverLeftOpen(t *testing.T) {
	c := fake(t)
	clean(t)
	w := newWorld(t, 2, nccl.Config{})
	reason := errors.New("the caller's own")
	check := func(name string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		for _, s := range w.streams {
			if done, err := s.Done(); !done || err != nil {
				t.Fatalf("%s: something was started: %v", name, err)
			}
		}
		w.works(t, w.comms)
	}
	err := w.lib.Group(func() error {
		ok(t, w.reduce(0))
		return reason
	})
	check("an error of the caller's", err, reason)

	fired := c.Fired()
	c.Fail("ncclAllReduce", 2, 3)
	err = w.lib.Group(func() error { return errors.Join(w.reduce(0), w.reduce(1)) })
	var e *nccl.Error
	if !errors.As(err, &e) || e.Code != 3 || e.Func != "ncclAllReduce" {
		t.Errorf("a failing call: %v", err)
	}
	check("a failing call", nil, nil)

	c.Fail("ncclGroupEnd", 1, 2)
	err = w.lib.Group(func() error { return w.reduce(0) })
	if !errors.As(err, &e) || e.Code != 2 || e.Func != "ncclGroupEnd" {
		t.Errorf("a failing end: %v", err)
	}
	check("a failing end", nil, nil)

	c.Fail("ncclGroupStart", 1, 2)
	if err := w.lib.Group(func() error { t.Error("called"); return nil }); !errors.As(err, &e) {
		t.Errorf("a failing start: %v", err)
	}
	check("a failing start", nil, nil)

	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = w.lib.Group(func() error {
			ok(t, w.reduce(0))
			panic("the caller's own")
		})
	}()
	check("a panic", nil, nil)
	if n := c.Fired() - fired; n != 3 {
		t.Errorf("%d faults happened, not 3", n)
	}
}

// TestComposedGroup makes a collective that consists of messages fail in the middle, with an NCCL version
// that lacks AllToAll. The error leaves no group open: the rank's next collectives succeed.
func TestComposedGroup(t *testing.T) {
	c := fake(t)
	libs, err := fakegpu.Build(21403)
	ok(t, err)
	lib, err := nccl.Load(libs.NCCL)
	ok(t, err)
	clean(t)
	fired := c.Fired()
	ok(t, together(t, lib, 2, nccl.Config{}, func(ctx context.Context, r *rank) error {
		s, err := cuda.Alloc[int32](r.dev, 10)
		if err != nil {
			return err
		}
		defer free(s)
		o, err := cuda.Alloc[int32](r.dev, 10)
		if err != nil {
			return err
		}
		defer free(o)
		if r.r == 0 {
			c.Fail("ncclRecv", 1, 1)
			if err := r.comm.AllToAll(nccl.Of(s), nccl.Of(o), r.stream); err == nil {
				return errors.New("the fault was not seen")
			}
		}
		return everyVerb(ctx, r)
	}))
	if c.Fired() != fired+1 {
		t.Error("the fault did not happen")
	}
}

func TestSimulate(t *testing.T) {
	w := newWorld(t, 1, nccl.Config{})
	c := w.comms[0]
	took, err := w.lib.Simulate(func() error { return w.reduce(0) })
	ok(t, err)
	t.Logf("estimated %v", took)
	if done, err := w.streams[0].Done(); !done || err != nil {
		t.Error("something was started", err)
	}
	w.works(t, []*nccl.Comm{c})
}
