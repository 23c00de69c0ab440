package nccl_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/nccl"
)

// TestBadInput checks that invalid arguments are errors before NCCL is called, and that in a group they
// keep the other operations from starting.
func TestBadInput(t *testing.T) {
	c := fake(t)
	clean(t)
	w := newWorld(t, 2, nccl.Config{})
	comm, s := w.comms[0], w.streams[0]
	x, y := nccl.Of(w.slices[0]), nccl.Of(w.slices[1])
	gone, err := cuda.Alloc[float32](w.devices[0], 100)
	ok(t, err, gone.Free())
	part := func(i, j int) nccl.Buffer {
		p, err := w.slices[0].Slice(i, j)
		ok(t, err)
		return nccl.Of(p)
	}
	words, err := cuda.Alloc[uint16](w.devices[0], 100)
	ok(t, err)
	defer free(words)
	numbers, err := cuda.Alloc[int32](w.devices[0], 100)
	ok(t, err)
	defer free(numbers)
	closedStream, err := w.devices[0].NewStream()
	ok(t, err, closedStream.Close())
	op, err := w.comms[1].PreMulSum(nccl.Float32, 2)
	ok(t, err)
	defer func() { ok(t, w.comms[1].FreeOp(op)) }()
	mine, err := comm.PreMulSum(nccl.Int32, 2)
	ok(t, err)
	defer func() { ok(t, comm.FreeOp(mine)) }()

	functions := []string{
		"ncclAllReduce", "ncclReduce", "ncclBroadcast", "ncclAllGather", "ncclReduceScatter", "ncclAlltoAll", "ncclGather",
		"ncclScatter", "ncclSend", "ncclRecv", "ncclRedOpCreatePreMulSum", "ncclCommRegister", "ncclCommWindowRegister",
		"ncclCommInitRankConfig", "ncclCommSplit", "ncclCommShrink", "ncclCommGrow", "ncclPutSignal", "ncclSignal", "ncclWaitSignal",
	}
	calls := func() (n int) {
		for _, f := range functions {
			n += c.Calls(f)
		}
		return n
	}
	before := calls()
	ctx, id := t.Context(), nccl.UniqueID{}
	d := w.devices[0]
	var none *nccl.Comm
	for name, err := range map[string]error{
		"AllReduce of nil":     none.AllReduce(x, x, nccl.Sum, s),
		"Reduce of nil":        none.Reduce(x, x, nccl.Sum, 0, s),
		"Broadcast of nil":     none.Broadcast(x, x, 0, s),
		"AllGather of nil":     none.AllGather(x, x, s),
		"ReduceScatter of nil": none.ReduceScatter(x, x, nccl.Sum, s),
		"AllToAll of nil":      none.AllToAll(x, x, s),
		"Gather of nil":        none.Gather(x, x, 0, s),
		"Scatter of nil":       none.Scatter(x, x, 0, s),
		"Send of nil":          none.Send(x, 1, s),
		"Recv of nil":          none.Recv(x, 1, s),
		"Signal of nil":        none.Signal(1, s),
		"no buffer":            comm.AllReduce(nccl.Buffer{}, x, nccl.Sum, s),
		"no target":            comm.AllReduce(x, nccl.Buffer{}, nccl.Sum, s),
		"counts differ":        comm.AllReduce(x, part(0, 50), nccl.Sum, s),
		"types differ":         comm.AllReduce(x, nccl.Of(numbers), nccl.Sum, s),
		"another device":       comm.AllReduce(y, y, nccl.Sum, s),
		"another's stream":     comm.AllReduce(x, x, nccl.Sum, w.streams[1]),
		"no stream":            comm.AllReduce(x, x, nccl.Sum, nil),
		"closed stream":        comm.AllReduce(x, x, nccl.Sum, closedStream),
		"freed":                comm.AllReduce(nccl.Of(gone), nccl.Of(gone), nccl.Sum, s),
		"no type":              comm.AllReduce(nccl.Of(words), nccl.Of(words), nccl.Sum, s),
		"type of another size": comm.Send(nccl.As(words, nccl.Float32), 1, s),
		"no operation":         comm.AllReduce(x, x, nccl.Op{}, s),
		"another's operation":  comm.AllReduce(x, x, op, s),
		"operation of a type":  comm.AllReduce(x, x, mine, s),
		"overlap":              comm.AllReduce(part(0, 50), part(20, 70), nccl.Sum, s),
		"root":                 comm.Broadcast(x, x, 2, s),
		"negative root":        comm.Reduce(x, x, nccl.Sum, -1, s),
		"gather root":          comm.Gather(x, x, 7, s),
		"scatter root":         comm.Scatter(x, x, 7, s),
		"short gather":         comm.AllGather(part(0, 40), part(50, 100), s),
		"gather overlaps":      comm.AllGather(part(50, 100), x, s),
		"short scatter":        comm.ReduceScatter(part(0, 50), part(60, 90), nccl.Sum, s),
		"gather at root":       comm.Gather(part(0, 50), part(50, 100), 0, s),
		"scatter at root":      comm.Scatter(part(0, 50), part(50, 100), 0, s),
		"odd exchange":         comm.AllToAll(part(0, 33), part(50, 83), s),
		"exchange in place":    comm.AllToAll(x, x, s),
		"peer":                 comm.Send(x, 2, s),
		"negative peer":        comm.Recv(x, -1, s),
		"factor not whole":     second(comm.PreMulSum(nccl.Int32, 1.5)),
		"factor too large":     second(comm.PreMulSum(nccl.Int8, 200)),
		"factor negative":      second(comm.PreMulSum(nccl.Uint32, -1)),
		"factor no number":     second(comm.PreMulSum(nccl.Int64, math.NaN())),
		"factor of no type":    second(comm.PreMulSum(0, 1)),
		"factors":              second(comm.PreMulSumAt(x)),
		"register nothing":     second(comm.Register(nccl.Buffer{})),
		"window nowhere":       second(comm.NewWindow(ctx, part(1, 9), 0)),
		"window mode":          second(comm.NewWindow(ctx, x, 9)),
		"signal to itself":     comm.Signal(0, s),
		"no signals":           comm.WaitSignal(1, 0, s),
		"no window":            comm.PutSignal(x, 1, nil, 0, s),
		"rank":                 second(w.lib.Init(ctx, d, id, 2, 2, nccl.Config{})),
		"size":                 second(w.lib.Init(ctx, d, id, 0, 0, nccl.Config{})),
		"size beyond 32 bits":  second(w.lib.Init(ctx, d, id, 0, 1<<32+1, nccl.Config{})),
		"raw, overflow":        second(nccl.Raw(d, w.slices[0].Pointer(), 1<<62+1, nccl.Float32)),
		"no ids":               second(w.lib.InitScalable(ctx, d, nil, 0, 2, nccl.Config{})),
		"no devices":           second(w.lib.InitAll(ctx, nil, nccl.Config{})),
		"no device":            second(w.lib.Init(ctx, nil, id, 0, 2, nccl.Config{})),
		"number too large":     second(w.lib.Init(ctx, d, id, 0, 2, nccl.Config{MinCTAs: nccl.Set(1 << 40)})),
		"color":                second(comm.Split(ctx, -2, 0, nccl.Config{})),
		"exclude nobody":       second(comm.Shrink(ctx, nil, false, nccl.Config{})),
		"exclude oneself":      second(comm.Shrink(ctx, []int{0}, false, nccl.Config{})),
		"exclude a stranger":   second(comm.Shrink(ctx, []int{5}, false, nccl.Config{})),
		"grow to the same":     second(comm.Grow(ctx, 2, nil, nccl.Config{})),
		"raw, too short":       second(nccl.Raw(d, w.slices[0].Pointer(), 101, nccl.Float32)),
		"raw, elsewhere":       second(nccl.Raw(d, w.slices[1].Pointer(), 1, nccl.Float32)),
		"raw, no type":         second(nccl.Raw(d, w.slices[0].Pointer(), 1, 99)),
	} {
		if !errors.Is(err, nccl.ErrInvalid) && !errors.Is(err, cuda.ErrInvalid) && !errors.Is(err, cuda.ErrFreed) && !errors.Is(err, cuda.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := calls() - before; n != 0 {
		t.Errorf("NCCL was called %d times", n)
	}
	err = w.lib.Group(func() error {
		ok(t, w.reduce(0))
		_ = comm.AllReduce(x, x, nccl.Op{}, s) // the program ignores the error
		return nil
	})
	if !errors.Is(err, nccl.ErrInvalid) {
		t.Errorf("a group with a refused call: %v", err)
	}
	for name, f := range map[string]func() error{
		"Close": comm.Close, "Abort": func() error { return comm.Abort(ctx) }, "Split": func() error { return second(comm.Split(ctx, 0, 0, nccl.Config{})) },
		"Finalize": func() error { return comm.Finalize(ctx) }, "AbortAll": func() error { return nccl.AbortAll(ctx, comm) },
		"Init":     func() error { return second(w.lib.Init(ctx, d, id, 0, 1, nccl.Config{})) },
		"Simulate": func() error { return second(w.lib.Simulate(func() error { return nil })) },
	} {
		if err := w.lib.Group(f); !errors.Is(err, nccl.ErrInvalid) {
			t.Errorf("%s in a group: %v", name, err)
		}
	}
	w.works(t, w.comms)
}

// TestTooOld makes calls that the old fake library does not have. Each returns a *cuda.VersionError with the
// needed version, and the communicator stays usable.
func TestTooOld(t *testing.T) {
	fake(t)
	clean(t)
	libs, err := fakegpu.Build(21403)
	ok(t, err)
	lib, err := nccl.Load(libs.NCCL)
	ok(t, err)
	again, err := nccl.Load(libs.NCCL)
	if ok(t, err); again != lib {
		t.Error("loaded twice")
	}
	ok(t, together(t, lib, 1, nccl.Config{}, func(ctx context.Context, r *rank) error {
		s, err := cuda.Alloc[uint8](r.dev, 8)
		if err != nil {
			return err
		}
		defer free(s)
		fp8 := nccl.As(s, nccl.Float8E4M3)
		for want, err := range map[string]error{
			"2.18":   second(r.comm.Split(ctx, 0, 0, nccl.Config{})),
			"2.19":   second(nccl.Alloc[int8](lib, r.dev, 1)),
			"2.22":   second(lib.Simulate(func() error { return nil })),
			"2.24":   r.comm.AllReduce(fp8, fp8, nccl.Sum, r.stream),
			"2.17":   second(lib.Init(ctx, r.dev, nccl.UniqueID{}, 0, 1, nccl.Config{NetName: "Socket"})),
			"2.25":   second(lib.Init(ctx, r.dev, nccl.UniqueID{}, 0, 1, nccl.Config{TrafficClass: nccl.Set(1)})),
			"2.28.7": r.comm.Revoke(ctx),
			"2.29":   second(r.comm.GrowID()),
			"2.29.7": second(r.comm.MemoryStats()),
			"2.30":   second(lib.Param("NCCL_DEBUG")),
		} {
			var v *cuda.VersionError
			if !errors.As(err, &v) || v.Need != want || v.Found != "2.14.3" || v.Library != "NCCL" {
				t.Errorf("needs %s: %v", want, err)
			}
		}
		return sums(ctx, r, r.comm)
	}))
}
