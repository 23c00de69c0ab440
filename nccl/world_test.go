package nccl_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/nccl"
)

// A world is a communicator of this process with one rank for each device, and a stream and memory for
// each rank.
type world struct {
	lib     *nccl.Library
	comms   []*nccl.Comm
	streams []*cuda.Stream
	slices  []*cuda.Slice[float32]
	devices []*cuda.Device
}

// newWorld makes n devices, streams, slices and communicators, all used by the test's goroutine. It skips the
// test if there are fewer devices. The end of the test frees everything.
func newWorld(t testing.TB, n int, cfg nccl.Config) *world {
	t.Helper()
	w := &world{lib: load(t)}
	count, err := cuda.Devices()
	ok(t, err)
	if count < n {
		t.Skipf("%d devices: too few", count)
	}
	for i := range n {
		d, err := cuda.Open(i, nil)
		ok(t, err)
		t.Cleanup(func() { ok(t, d.Close()) })
		s, err := d.NewStream()
		ok(t, err)
		t.Cleanup(func() { ok(t, s.Close()) })
		x, err := cuda.Alloc[float32](d, 100)
		ok(t, err, x.Fill(1))
		t.Cleanup(func() { ok(t, x.Free()) })
		w.devices, w.streams, w.slices = append(w.devices, d), append(w.streams, s), append(w.slices, x)
	}
	w.comms = w.init(t, cfg)
	return w
}

// init makes the communicators of all ranks. At the end of the test a goroutine closes each, because a Close
// may wait for the others.
func (w *world) init(t testing.TB, cfg nccl.Config) []*nccl.Comm {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	comms, err := w.lib.InitAll(ctx, w.devices, cfg)
	ok(t, err)
	t.Cleanup(func() {
		var all sync.WaitGroup
		for _, c := range comms {
			all.Go(func() { ok(t, c.Close()) })
		}
		all.Wait()
	})
	return comms
}

// reduce starts an AllReduce on one rank.
func (w *world) reduce(i int) error {
	b := nccl.Of(w.slices[i])
	return w.comms[i].AllReduce(b, b, nccl.Sum, w.streams[i])
}

// works checks that all ranks can still be used, from one goroutine: the ranks' calls are one Group.
func (w *world) works(t testing.TB, comms []*nccl.Comm) {
	t.Helper()
	for i := range comms {
		ok(t, w.slices[i].Fill(2))
	}
	ok(t, w.lib.Group(func() error {
		var errs []error
		for i, c := range comms {
			b := nccl.Of(w.slices[i])
			errs = append(errs, c.AllReduce(b, b, nccl.Sum, w.streams[i]))
		}
		return errors.Join(errs...)
	}))
	for i := range comms {
		got := make([]float32, 100)
		ok(t, w.streams[i].Wait(t.Context()), w.slices[i].CopyTo(got))
		if got[99] != float32(2*len(comms)) {
			t.Fatalf("rank %d has %v", i, got[99])
		}
	}
}

func second[V any](_ V, err error) error { return err }

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
