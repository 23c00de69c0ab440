package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
	"github.com/tutti-go/tutti/internal/cudasys"
)

// TestBothKinds uses one Comm for device memory and for host memory, separately and in one Batch, and
// a subgroup of it.
func TestBothKinds(t *testing.T) {
	for n := 1; n <= 3; n++ {
		for _, staged := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/staged=%v", n, staged), func(t *testing.T) { bothKinds(t, n, tutti.Config{HostStaging: staged}) })
		}
	}
}

// bothKinds runs operations on device memory and on host memory on n ranks: alone, in one Batch, and on a
// Comm made by Split. It checks all results.
func bothKinds(t *testing.T, n int, cfg tutti.Config) {
	sum := float32(n * (n + 1) / 2)
	ok(t, run(t, n, cfg, func(ctx context.Context, r *rank) error {
		host := []float32{float32(r.Rank() + 1)}
		err := first(r.AllReduce(ctx, gpu.Of(r.x), tutti.Sum), r.holds(sum),
			r.AllReduce(ctx, tutti.Of(host), tutti.Sum), r.Barrier(ctx))
		if err == nil && host[0] != sum {
			err = fmt.Errorf("host memory holds %v", host[0])
		}
		if err != nil {
			return err
		}
		w, err := r.Batch().AllReduce(gpu.Of(r.x), tutti.Avg).AllReduce(tutti.Of(host), tutti.Max).
			Broadcast(gpu.Of(r.x).Slice(0, 0), 0).Barrier().Start(ctx)
		if err = first(err, w.Wait(ctx), r.holds(sum)); err != nil {
			return err
		}
		sub, err := r.Split(ctx, r.Rank()%2, 0)
		if err != nil {
			return err
		}
		return first(sub.AllReduce(ctx, gpu.Of(r.x), tutti.Max), r.holds(sum), sub.Close())
	}))
}

// TestRefused makes calls on both ranks that are invalid or that NCCL lacks. Each is refused without affecting the other rank,
// and the Comm stays usable.
func TestRefused(t *testing.T) {
	ok(t, run(t, 2, tutti.Config{}, func(ctx context.Context, r *rank) error {
		host := tutti.Of(make([]float32, 100))
		x := gpu.Of(r.x)
		freed, err := cuda.Alloc[float32](r.dev, 100)
		if err = first(err, freed.Free()); err != nil {
			return err
		}
		other := tutti.DeviceBuffer(1-r.Rank(), unsafe.Pointer(nil), tutti.Float32Type, 0)
		device := func(d int, t tutti.DType, n int) tutti.Buffer { return tutti.DeviceBuffer(d, pointer(r.x), t, n) }
		long := tutti.DeviceBuffer(r.Rank(), pointer(r.x), tutti.Float32Type, 1<<30)
		for name, c := range map[string]struct {
			err  error
			kind error
		}{
			"mixed":           {r.AllReduceTo(ctx, x, host, tutti.Sum), tutti.ErrInvalid},
			"another device":  {r.AllReduce(ctx, other, tutti.Sum), tutti.ErrInvalid},
			"freed memory":    {r.AllReduce(ctx, gpu.Of(freed), tutti.Sum), tutti.ErrInvalid},
			"too long":        {r.AllReduce(ctx, long, tutti.Sum), tutti.ErrInvalid},
			"a root too many": {r.Broadcast(ctx, x, 2), tutti.ErrInvalid},
			"to nobody":       {r.Send(ctx, 2, x, 0), tutti.ErrInvalid},
			"a negative tag":  {r.Send(ctx, 1-r.Rank(), x, -1), tutti.ErrInvalid},
			"freed message":   {receive(ctx, r.Comm, 1-r.Rank(), gpu.Of(freed), 0), tutti.ErrInvalid},
			"other's message": {r.Send(ctx, 1-r.Rank(), other, 0), tutti.ErrInvalid},
			"no stream":       {second(r.Batch().On(nil).AllReduce(x, tutti.Sum).Start(ctx)), tutti.ErrInvalid},
			"a false stream":  {second(r.Batch().On(falseStream{}).AllReduce(x, tutti.Sum).Start(ctx)), tutti.ErrInvalid},

			"device -1":         {r.AllReduce(ctx, device(-1, tutti.Float32Type, 1), tutti.Sum), tutti.ErrInvalid},
			"device 65535":      {r.AllReduce(ctx, device(65535, tutti.Float32Type, 1), tutti.Sum), tutti.ErrInvalid},
			"message, -1":       {r.Send(ctx, 1-r.Rank(), device(-1, tutti.Float32Type, 1), 0), tutti.ErrInvalid},
			"more than memory":  {r.AllReduce(ctx, device(r.Rank(), tutti.Float32Type, 1<<62), tutti.Sum), tutti.ErrInvalid},
			"integer average":   {r.AllReduce(ctx, device(r.Rank(), tutti.Int32Type, 4), tutti.Avg), tutti.ErrInvalid},
			"integer factor":    {r.AllReduce(ctx, device(r.Rank(), tutti.Int32Type, 4), tutti.PreMul(2)), tutti.ErrInvalid},
			"bits of floats":    {r.AllReduce(ctx, x, tutti.Xor), tutti.ErrInvalid},
			"bits":              {r.AllReduce(ctx, device(r.Rank(), tutti.Int32Type, 4), tutti.And), tutti.ErrUnsupported},
			"scan":              {r.Scan(ctx, x, x, tutti.Sum), tutti.ErrUnsupported},
			"scan in a batch":   {r.Batch().ExScan(x, x, tutti.Sum).Run(ctx), tutti.ErrUnsupported},
			"16 bits":           {r.Broadcast(ctx, device(r.Rank(), tutti.Int16Type, 4), 0), tutti.ErrUnsupported},
			"no 16 bits":        {r.AllReduce(ctx, device(r.Rank(), tutti.Uint16Type, 0), tutti.Sum), tutti.ErrUnsupported},
			"16-bit message":    {r.Send(ctx, 1-r.Rank(), device(r.Rank(), tutti.Uint16Type, 4), 0), tutti.ErrUnsupported},
			"exchange in place": {r.SendRecv(ctx, 1-r.Rank(), x, 1-r.Rank(), x, 0), tutti.ErrInvalid},
			"exchange overlaps": {r.SendRecv(ctx, 1-r.Rank(), x.Slice(0, 9), 1-r.Rank(), x.Slice(8, 17), 0), tutti.ErrInvalid},
			"batch overlaps": {
				second(r.Batch().AllReduce(x.Slice(0, 9), tutti.Sum).Broadcast(x.Slice(8, 10), 0).Start(ctx)), tutti.ErrInvalid,
			},
			"batch overlaps a message": {
				second(r.Batch().AllReduce(x.Slice(0, 9), tutti.Sum).Send(1-r.Rank(), x.Slice(8, 10), 0).Start(ctx)), tutti.ErrInvalid,
			},
			"batch overlaps as host memory": {
				second(r.Batch().AllReduce(x, tutti.Sum).Broadcast(tutti.Of(unsafe.Slice((*float32)(pointer(r.x)), 1)), 0).Start(ctx)),
				tutti.ErrInvalid,
			},
		} {
			if !errors.Is(c.err, c.kind) {
				return fmt.Errorf("%s: %v, want %v", name, c.err, c.kind)
			}
		}
		return first(r.AllReduce(ctx, x, tutti.Sum), r.holds(3))
	}))
}

type falseStream struct{}

func (falseStream) Handle() uintptr { return 0 }

func second[V any](_ V, err error) error { return err }

func pointer(s *cuda.Slice[float32]) unsafe.Pointer {
	p := s.Pointer()
	return *(*unsafe.Pointer)(unsafe.Pointer(&p))
}

// TestNoDevice uses a Comm without a device, and devices that do not exist.
func TestNoDevice(t *testing.T) {
	b := tutti.DeviceBuffer(0, unsafe.Pointer(nil), tutti.Float32Type, 0)
	ok(t, tutti.RunLocal(t.Context(), 1, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		if err := c.AllReduce(ctx, b, tutti.Sum); !errors.Is(err, tutti.ErrNoDevicePath) {
			return fmt.Errorf("device memory: %w", err)
		}
		if _, err := c.Batch().On(falseStream{}).Barrier().Start(ctx); !errors.Is(err, tutti.ErrNoDevicePath) {
			return fmt.Errorf("a stream: %w", err)
		}
		return nil
	}))
	for _, d := range []tutti.Device{gpu.Device(1000), gpu.Devices()} {
		if _, err := tutti.Local(2, tutti.Config{Device: d}); err == nil {
			t.Error("a Comm with a device that is not there")
		}
		if _, err := tutti.Join(t.Context(), tutti.Config{Device: d}); err == nil {
			t.Error("a Comm with a device that is not there")
		}
	}
	c, err := tutti.Join(t.Context(), tutti.Config{Device: gpu.Device(0)})
	ok(t, err, c.Barrier(t.Context()), c.Close())
}

// TestStreamOrder holds the compute stream back until a fill, a collective and a copy of the result are
// submitted. With host staging, Start itself waits for the stream, which is released before.
func TestStreamOrder(t *testing.T) {
	for _, staged := range []bool{false, true} {
		t.Run(fmt.Sprintf("staged=%v", staged), func(t *testing.T) { streamOrder(t, tutti.Config{HostStaging: staged}) })
	}
}

// streamOrder starts collectives in the order of a stream that waits for the word hold, and checks that each
// uses the values that were in the stream before it. The rank's goroutine sets hold after the start; with
// host staging it sets it before, because Start waits for the stream there.
func streamOrder(t *testing.T, cfg tutti.Config) {
	const ranks, rounds = 2, 20
	ok(t, run(t, ranks, cfg, func(ctx context.Context, r *rank) error {
		s, err := r.dev.NewStream()
		if err != nil {
			return err
		}
		defer s.Close()
		hold, err := cuda.AllocHost[uint32](r.dev, 1)
		if err != nil {
			return err
		}
		defer free(hold)
		out, err := cuda.AllocHost[float32](r.dev, r.x.Len())
		if err != nil {
			return err
		}
		defer free(out)
		addr, err := hold.DevicePointer()
		if err != nil {
			return err
		}
		b := r.Batch().On(s).AllReduce(gpu.Of(r.x), tutti.Sum).Barrier()
		// The first operation makes the communicator. The driver would wait for the stream that is
		// held back below.
		w, err := b.Start(ctx)
		if err := first(err, w.Wait(ctx)); err != nil {
			return err
		}
		for i := range uint32(rounds) {
			v := float32(int(i) + r.Rank())
			if err := first(s.WaitValue(addr, i+1), r.x.FillOn(s, v)); err != nil {
				return err
			}
			if cfg.HostStaging {
				store(&hold.Data()[0], i+1)
			}
			w, err := b.Start(ctx)
			if err = first(err, r.x.CopyToOn(s, out.Data())); err != nil {
				return err
			}
			if !cfg.HostStaging && w.Over() {
				return errors.New("the collective did not wait for the stream")
			}
			store(&hold.Data()[0], i+1)
			if err := first(w.Wait(ctx), s.Wait(ctx)); err != nil {
				return err
			}
			if got, want := out.Data()[99], float32(2*int(i)+1); got != want {
				return fmt.Errorf("round %d: rank %d has %v, want %v", i, r.Rank(), got, want)
			}
		}
		return nil
	}))
}

// TestCapture captures a stream into a graph: no operation can be ordered with it until the capture
// ends.
func TestCapture(t *testing.T) {
	drv, err := cudasys.Load()
	ok(t, err)
	ok(t, run(t, 2, tutti.Config{}, func(ctx context.Context, r *rank) error {
		s, err := r.dev.NewStream()
		if err != nil {
			return err
		}
		defer s.Close()
		b := r.Batch().On(s).AllReduce(gpu.Of(r.x), tutti.Sum)
		if err := r.dev.Do(func() error { return drv.StreamBeginCapture(s.Handle()) }); err != nil {
			return err
		}
		_, refused := b.Start(ctx)
		err = r.dev.Do(func() error {
			graph, err := drv.StreamEndCapture(s.Handle())
			if graph != 0 {
				err = first(err, drv.GraphDestroy(graph))
			}
			return err
		})
		if err != nil {
			return err
		}
		if !errors.Is(refused, tutti.ErrUnsupported) || !strings.Contains(refused.Error(), "captured into a CUDA graph") {
			return fmt.Errorf("captured: %w", refused)
		}
		w, err := b.Start(ctx)
		return first(err, w.Wait(ctx), s.Wait(ctx), r.holds(3))
	}))
}

// TestStreamGoesOn has two goroutines of rank 0 start operations in the order of a stream, for which rank 1
// never calls. Cancelling them fails the group, both calls of Start return ErrAborted, and the stream does
// not wait for the operations.
func TestStreamGoesOn(t *testing.T) {
	err := run(t, 2, tutti.Config{}, func(ctx context.Context, r *rank) error {
		s, err := r.dev.NewStream()
		if err != nil {
			return err
		}
		defer s.Close()
		if r.Rank() == 1 {
			<-r.Done()
			return r.Err()
		}
		// Two callers wait in Start for the other rank: one submits its own operation, and the
		// other's is queued behind it.
		own, cancel := context.WithCancel(ctx)
		defer cancel()
		errs := make(chan error, 2)
		for range cap(errs) {
			go func() {
				_, err := r.Batch().On(s).AllReduce(gpu.Of(r.x), tutti.Sum).Start(own)
				errs <- err
			}()
		}
		for n := 0; n < cap(errs); time.Sleep(time.Millisecond) {
			var dump strings.Builder
			if err := r.Dump(&dump); err != nil {
				return err
			}
			n = strings.Count(dump.String(), `"running"`) + strings.Count(dump.String(), `"queued"`)
		}
		cancel()
		for range cap(errs) {
			if err := <-errs; !errors.Is(err, tutti.ErrAborted) {
				return fmt.Errorf("cancelled, and returned %w", err)
			}
		}
		// The end of the other rank cancels ctx.
		if err := s.Wait(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("the stream: %w", err)
		}
		return r.Err()
	})
	if !errors.Is(err, tutti.ErrAborted) {
		t.Error(err)
	}
}
