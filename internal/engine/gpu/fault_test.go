package gpu

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/job"
)

const outOfMemory = 2

// TestSubWithoutDevice lets the driver fail on one rank in Sub: the parent group fails with that error on all
// ranks. A rank whose own Sub succeeded learns of it by Failed.
func TestSubWithoutDevice(t *testing.T) {
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	clean(t)
	t.Cleanup(control.Reset)
	engines := newEngines(t, 2, engine.DeviceOptions{})
	fired := control.Fired()
	control.Fail("cuStreamCreateWithPriority", 1, outOfMemory)
	errs := make([]error, len(engines))
	var ranks sync.WaitGroup
	for r, e := range engines {
		ranks.Go(func() {
			sub, err := e.Sub(t.Context(), 1, []int{0, 1})
			if err == nil {
				err = sub.Close()
			} else if f := e.Failure(); f == nil || f.Error() != err.Error() {
				err = fmt.Errorf("this rank was told %w, and the group has failed by %v", err, f)
			} else {
				err = nil
			}
			<-e.Failed()
			if f := e.Failure(); !errors.Is(f, engine.ErrAborted) || !strings.Contains(f.Reason(), "cannot be used for a new Comm") {
				err = errors.Join(err, fmt.Errorf("the group has failed by %w", f))
			}
			errs[r] = errors.Join(err, e.Close())
		})
	}
	ranks.Wait()
	ok(t, errs...)
	if control.Fired() != fired+1 {
		t.Error("the fault did not happen")
	}
}

// TestManyStreams orders each operation with another stream, which is closed afterwards. The first
// operation creates the communicator.
func TestManyStreams(t *testing.T) {
	clean(t)
	e := newEngines(t, 1, engine.DeviceOptions{})[0]
	for seq := range uint64(200) {
		s, err := e.dev.NewStream()
		ok(t, err)
		ok(t, e.AdmitStream(s))
		p := launch(e, request{ctx: t.Context(), seq: seq + 1, calls: []engine.Call{{Verb: engine.Barrier}}, stream: s})
		ok(t, p.settle(), s.Wait(t.Context()), s.Close())
	}
	ok(t, e.Close())
}

// TestPinnedOnOne lets pinning the shared memory fail on one of two ranks. That rank uses memory of its own, and
// the ranks still exchange data. The ranks are goroutines, but they join one job as processes do: only such
// ranks share a mapped segment, which an engine pins. The ranks of newEngines share ordinary memory.
func TestPinnedOnOne(t *testing.T) {
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	clean(t)
	t.Cleanup(control.Reset)
	fired := control.Fired()
	control.Fail("cuMemHostRegister_v2", 1, outOfMemory)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	const elems = 1 << 16
	gather := func(r int) error {
		cfg := job.Config{
			Rank: r, Size: 2, Addr: l.Addr().String(), Secret: []byte("test"), Timeout: time.Minute,
			Logger: slog.New(slog.DiscardHandler),
		}
		if r == 0 {
			cfg.Listener = l
		}
		entered, err := job.Enter(t.Context(), cfg)
		if err != nil {
			return err
		}
		cpu := entered.World()
		dev, err := cuda.Open(r, nil)
		if err != nil {
			return errors.Join(err, cpu.Close())
		}
		e, err := New(cpu, nil, dev, engine.DeviceOptions{HostStaging: true, Timeout: time.Minute})
		if err != nil {
			return errors.Join(err, cpu.Close()) // New has closed dev
		}
		x, err := cuda.Alloc[float32](dev, 2*elems)
		if err != nil {
			return errors.Join(err, e.Close())
		}
		if err = x.Fill(float32(r + 1)); err == nil {
			m := deviceMem(e, x)
			err = e.Run(t.Context(), 1, []engine.Call{{Verb: engine.AllGather, Src: m.Slice(r*elems, elems), Dst: m}})
		}
		got := make([]float32, 2*elems)
		if err == nil {
			err = x.CopyTo(got)
		}
		for i := 0; i < len(got) && err == nil; i++ {
			if got[i] != float32(1+i/elems) {
				err = fmt.Errorf("element %d is %v", i, got[i])
			}
		}
		return errors.Join(err, x.Free(), e.Close())
	}
	errs := make([]error, 2)
	var ranks sync.WaitGroup
	for r := range errs {
		ranks.Go(func() { errs[r] = gather(r) })
	}
	ranks.Wait()
	ok(t, errs...)
	if control.Fired() != fired+1 {
		t.Error("the fault did not happen")
	}
}
