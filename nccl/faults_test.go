package nccl_test

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/standin"
	"github.com/tutti-go/tutti/nccl"
)

// A world is communicators of this process, one for each device, and a slice of
// memory and a stream for each.
type world struct {
	lib     *nccl.Library
	comms   []*nccl.Comm
	streams []*cuda.Stream
	slices  []*cuda.Slice[float32]
	devices []*cuda.Device
}

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

// init makes communicators, which the test's end closes.
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

// works checks that all ranks can still be used, from one goroutine.
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

// TestBadInput holds that wrong arguments are errors before NCCL is called, and
// that in a group they keep the rest from starting.
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
	for name, err := range map[string]error{
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
		_ = comm.AllReduce(x, x, nccl.Op{}, s) // its error is ignored
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

func second[V any](_ V, err error) error { return err }

// TestGroupIsNeverLeftOpen lets groups fail in every way: nothing of them starts,
// and the next operation is not part of them.
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

// TestComposedGroup lets a collective that is made of messages fail in the
// middle.
func TestComposedGroup(t *testing.T) {
	c := fake(t)
	libs, err := standin.Build(21403)
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

// TestAbort ends a collective that waits for a rank that never comes, from
// another goroutine, on communicators of both kinds; the process can go on.
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

// TestCloseAndAbort races them: the handle is freed once.
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

// TestAbortWaitsForCalls fires while a call hangs in NCCL: it does not abort
// under it, and does when the call has returned.
func TestAbortWaitsForCalls(t *testing.T) {
	c := fake(t)
	clean(t)
	w := newWorld(t, 2, nccl.Config{})
	fired, aborts := c.Fired(), c.Calls("ncclCommAbort")
	c.Fail("ncclAllReduce", 1, standin.Hang)
	call := make(chan error)
	go func() { call <- w.reduce(0) }()
	for c.Fired() == fired {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := w.comms[0].Abort(ctx); !errors.Is(err, nccl.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while a call hangs: %v", err)
	}
	if n := c.Calls("ncclCommAbort") - aborts; n != 0 {
		t.Error("it aborted under the call")
	}
	c.Release()
	ok(t, <-call, w.comms[0].Abort(t.Context()))
	if n := c.Calls("ncclCommAbort") - aborts; n != 1 {
		t.Errorf("it aborted %d times", n)
	}
	ok(t, w.streams[0].Wait(t.Context()))
}

// TestAbortHangs lets NCCL's own abort hang: the caller does not.
func TestAbortHangs(t *testing.T) {
	c := fake(t)
	clean(t)
	w := newWorld(t, 2, nccl.Config{})
	fired := c.Fired()
	c.Fail("ncclCommAbort", 1, standin.Hang)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := nccl.AbortAll(ctx, w.comms...)
	if !errors.Is(err, nccl.ErrStarted) || c.Fired() != fired+1 {
		t.Errorf("a hanging abort: %v", err)
	}
	c.Release()
	ok(t, nccl.AbortAll(t.Context(), w.comms...))
}

// TestInitGivesUp lets a rank never come: Init returns when the context ends, and
// nothing stays behind once NCCL can be made to end.
func TestInitGivesUp(t *testing.T) {
	c := fake(t)
	w := newWorld(t, 2, nccl.Config{})
	before := c.AllLive()
	for _, cfg := range []nccl.Config{{NonBlocking: true}, {}} {
		id, err := w.lib.NewID()
		ok(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		_, err = w.lib.Init(ctx, w.devices[0], id, 0, 2, cfg)
		cancel()
		if !errors.Is(err, nccl.ErrStarted) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a rank that waits alone: %v", err)
		}
		if !cfg.NonBlocking {
			// Blocked in NCCL: it ends when the other rank comes after all.
			other, err := w.lib.Init(t.Context(), w.devices[1], id, 1, 2, cfg)
			ok(t, err, other.Abort(t.Context()))
		}
		for end := time.Now().Add(deadline); c.AllLive() != before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("left behind: %v, before: %v", c.AllLive(), before)
			}
		}
	}
	w.works(t, w.comms)
}

// TestInitFails makes one of several communicators fail: the others end too, and
// the first cause is reported.
func TestInitFails(t *testing.T) {
	c := fake(t)
	w := newWorld(t, 3, nccl.Config{})
	before := c.AllLive()
	for _, cfg := range []nccl.Config{{NonBlocking: true}} {
		fired := c.Fired()
		c.Fail("ncclCommInitRankConfig", 2, 2)
		_, err := w.lib.InitAll(t.Context(), w.devices, cfg)
		var e *nccl.Error
		if !errors.As(err, &e) || e.Code != 2 || c.Fired() != fired+1 {
			t.Errorf("one of three failed: %v", err)
		}
		for end := time.Now().Add(deadline); c.AllLive() != before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("left behind: %v, before: %v", c.AllLive(), before)
			}
		}
	}
	// Two ranks on one device of one host.
	_, err := w.lib.InitAll(t.Context(), []*cuda.Device{w.devices[0], w.devices[0]}, nccl.Config{})
	var e *nccl.Error
	if !errors.As(err, &e) || e.Code != 5 || !strings.Contains(err.Error(), "Duplicate GPU") {
		t.Errorf("one device twice: %v", err)
	}
	w.works(t, w.comms)
}

// TestAsyncError lets a collective fail on the device: the error shows, Close
// aborts, and the process can go on.
func TestAsyncError(t *testing.T) {
	c := fake(t)
	clean(t)
	w := newWorld(t, 2, nccl.Config{})
	fired, aborts := c.Fired(), c.Calls("ncclCommAbort")
	c.Fail(standin.Kernel, 1, 6)
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

// TestMismatch lets ranks call different things, which the stand-in reports.
func TestMismatch(t *testing.T) {
	fake(t)
	clean(t)
	w := newWorld(t, 2, nccl.Config{})
	ok(t, w.reduce(0))
	b := nccl.Of(w.slices[1])
	ok(t, w.comms[1].AllReduce(b, b, nccl.Max, w.streams[1]))
	var err error
	for err == nil { // one of them sees it
		err = errors.Join(w.comms[0].AsyncError(), w.comms[1].AsyncError())
	}
	if !strings.Contains(err.Error(), "called something else") {
		t.Error(err)
	}
	ok(t, nccl.AbortAll(t.Context(), w.comms...))
}

// TestTooOld asks an old version for what it does not have.
func TestTooOld(t *testing.T) {
	fake(t)
	clean(t)
	libs, err := standin.Build(21403)
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

// TestShrinkAndGrow loses a rank, goes on without it, and lets another in.
func TestShrinkAndGrow(t *testing.T) {
	fake(t)
	clean(t)
	for _, cfg := range []nccl.Config{{}, {NonBlocking: true}} {
		for _, revoke := range []bool{false, true} {
			shrinkAndGrow(t, cfg, revoke)
		}
	}
}

func shrinkAndGrow(t *testing.T, cfg nccl.Config, revoke bool) {
	w := newWorld(t, 3, cfg)
	ids := make(chan nccl.UniqueID, 1)
	each := func(n int, f func(i int) error) {
		t.Helper()
		errs := make(chan error, n)
		for i := range n {
			go func() { errs <- f(i) }()
		}
		for range n {
			ok(t, <-errs)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	small, large := make([]*nccl.Comm, 2), make([]*nccl.Comm, 3)
	each(2, func(i int) (err error) {
		if err := w.reduce(i); err != nil { // the third never comes
			return err
		}
		if revoke {
			if err := w.comms[i].Revoke(ctx); err != nil {
				return err
			}
		}
		small[i], err = w.comms[i].Shrink(ctx, []int{2}, !revoke, cfg)
		if err == nil && !errors.Is(w.reduce(i), nccl.ErrRevoked) {
			t.Error("the old communicator is not revoked")
		}
		return errors.Join(err, w.streams[i].Wait(ctx))
	})
	w.works(t, small)
	each(3, func(i int) (err error) {
		if i == 2 {
			large[2], err = w.lib.Join(ctx, w.devices[2], <-ids, 2, 3, cfg)
			return err
		}
		var id *nccl.UniqueID
		if i == 0 {
			made, err := small[0].GrowID()
			if err != nil {
				return err
			}
			ids <- made
			id = &made
		}
		large[i], err = small[i].Grow(ctx, 3, id, cfg)
		return err
	})
	w.works(t, large)
	ok(t, nccl.AbortAll(ctx, append(small, large...)...), nccl.AbortAll(ctx, w.comms...))
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

func TestSuspend(t *testing.T) {
	fake(t) // what real communicators hold depends on the machine
	clean(t)
	w := newWorld(t, 1, nccl.Config{CommName: "a name", MinCTAs: nccl.Set(1), MaxCTAs: nccl.Set(4), RMAContexts: nccl.Set(1)})
	c := w.comms[0]
	ok(t, c.Suspend(t.Context()), c.Resume(t.Context()))
	m, err := c.MemoryStats()
	ok(t, err)
	if m.Total != 1003 || m.Suspendable != 1000 || m.Persistent != 1002 {
		t.Errorf("%+v", m)
	}
	if _, err := w.lib.InitAll(t.Context(), w.devices, nccl.Config{MinCTAs: nccl.Set(4), MaxCTAs: nccl.Set(1)}); err == nil {
		t.Error("the config did not arrive")
	}
}

func TestScalable(t *testing.T) {
	clean(t)
	lib := load(t)
	d, err := cuda.Open(0, nil)
	ok(t, err)
	defer d.Close()
	id, err := lib.NewID()
	ok(t, err)
	c, err := lib.InitScalable(t.Context(), d, []nccl.UniqueID{id}, 0, 1, nccl.Config{})
	ok(t, err, c.Close())
}

// TestCallsDoNotAllocate covers every collective and message.
func TestCallsDoNotAllocate(t *testing.T) {
	if raced {
		t.Skip("under the race detector pools drop what they are given")
	}
	w := newWorld(t, 1, nccl.Config{})
	c, s, b := w.comms[0], w.streams[0], nccl.Of(w.slices[0])
	o, err := cuda.Alloc[float32](w.devices[0], 100)
	ok(t, err)
	defer free(o)
	to := nccl.Of(o)
	group := func() error { return first(c.Send(b, 0, s), c.Recv(to, 0, s)) }
	for name, f := range map[string]func() error{
		"AllReduce":     func() error { return c.AllReduce(b, b, nccl.Sum, s) },
		"Reduce":        func() error { return c.Reduce(b, to, nccl.Sum, 0, s) },
		"Broadcast":     func() error { return c.Broadcast(b, to, 0, s) },
		"AllGather":     func() error { return c.AllGather(b, to, s) },
		"ReduceScatter": func() error { return c.ReduceScatter(b, to, nccl.Sum, s) },
		"AllToAll":      func() error { return c.AllToAll(b, to, s) },
		"Gather":        func() error { return c.Gather(b, to, 0, s) },
		"Scatter":       func() error { return c.Scatter(b, to, 0, s) },
		"AsyncError":    c.AsyncError,
	} {
		if n := testing.AllocsPerRun(100, func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		ok(t, s.Wait(t.Context()))
	}
	// A group itself remembers its communicators; its calls add nothing.
	small := testing.AllocsPerRun(100, func() { ok(t, w.lib.Group(group)) })
	large := testing.AllocsPerRun(100, func() {
		ok(t, w.lib.Group(func() error { return first(group(), group(), group(), group()) }))
	})
	ok(t, s.Wait(t.Context()))
	if large > small+1 { // the closure
		t.Errorf("a group of 2 allocates %v times, of 8 %v times", small, large)
	}
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestCycles makes and ends communicators many times, some of which fail half
// way: no descriptors and no memory stay behind.
func TestCycles(t *testing.T) {
	c := fake(t)
	w := newWorld(t, 2, nccl.Config{})
	descriptors := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		ok(t, err)
		return len(files)
	}
	ids := 0
	cycle := func(i int) {
		cfg := nccl.Config{NonBlocking: i%2 == 1}
		if i%5 == 4 {
			cfg.NonBlocking = true // one that blocks would wait for the missing rank
			fired := c.Fired()
			c.Fail("ncclCommInitRankConfig", 1+i%2, 1)
			if _, err := w.lib.InitAll(t.Context(), w.devices, cfg); err == nil || c.Fired() != fired+1 {
				t.Fatal("the fault did not happen", err)
			}
			ids++
			return
		}
		comms, err := w.lib.InitAll(t.Context(), w.devices, cfg)
		ok(t, err)
		w.works(t, comms)
		if i%3 == 0 {
			ok(t, nccl.AbortAll(t.Context(), comms...))
			return
		}
		var all sync.WaitGroup
		for _, comm := range comms {
			all.Go(func() { ok(t, comm.Close()) })
		}
		all.Wait()
	}
	for i := range 10 {
		cycle(i)
	}
	// What was given up is aborted in the background.
	for c.Live(standin.Comms) != len(w.comms) {
		time.Sleep(time.Millisecond)
	}
	live, files, wasted := c.AllLive(), descriptors(), ids
	for i := range 50 {
		cycle(i)
	}
	for end := time.Now().Add(deadline); ; time.Sleep(time.Millisecond) {
		// Each id that not all ranks used keeps its meeting place for a while, and
		// the connection of a rank that came, as in NCCL.
		extra := 2 * (ids - wasted)
		if c.AllLive() == live && descriptors() <= files+extra {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v and %d descriptors, before: %v and %d", c.AllLive(), descriptors(), live, files)
		}
	}
}
