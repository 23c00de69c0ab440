package cuda_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/cudasys"
	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/internal/proctest"
)

// TestDevice checks that the properties of device 0 are plausible.
func TestDevice(t *testing.T) {
	ok(t, cuda.Available())
	d := open(t, 0)
	name := must(d.Name())(t)
	id := must(d.UUID())(t)
	bus := must(d.PCIBusID())(t)
	major, _, err := d.Capability()
	ok(t, err)
	free, total, err := d.Memory()
	ok(t, err, d.Synchronize())
	version, path, err := cuda.Version()
	ok(t, err)
	if name == "" || id == [16]byte{} || !strings.Contains(bus, ":") || major < 1 || free == 0 || free > total || version < 9000 || path == "" {
		t.Error(name, id, bus, major, free, total, version, path)
	}
	t.Logf("%s at %s, driver %d in %s", name, bus, version, path)
	if d.Ordinal() != 0 || d.String() != "device 0" || d.Context() == 0 {
		t.Error(d)
	}
}

// TestCurrentContextIsLeftAlone makes every call on a thread with another current
// context, and on a thread without one.
func TestCurrentContextIsLeftAlone(t *testing.T) {
	d := open(t, 0)
	drv := must(cudasys.Load())(t)
	everything := func() {
		s, err := cuda.Alloc[int32](d, 10)
		ok(t, err)
		st := must(d.NewStream())(t)
		ev := must(d.NewEvent())(t)
		h := must(cuda.AllocHost[int32](d, 10))(t)
		p := must(d.NewPool(100))(t)
		a := must(cuda.AllocOn[int32](st, p, 10))(t)
		ok(t, s.Fill(1), s.FillOn(st, 2), s.CopyFrom(make([]int32, 10)), s.CopyToOn(st, h.Data()), ev.Record(st),
			st.WaitEvent(ev), st.Synchronize(), ev.Synchronize(), a.FreeOn(st), d.Synchronize(), st.WaitStream(st))
		_, _, err = d.Memory()
		ok(t, err, s.Free(), ev.Close(), st.Close(), h.Free(), p.Close())
		_, err = cuda.Wrap[int8](d, 16, 1)
		if err == nil {
			t.Error("a foreign address was taken")
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := must(drv.CtxCurrent())(t)
	everything()
	if now := must(drv.CtxCurrent())(t); now != before {
		t.Errorf("the context was %#x and is %#x", before, now)
	}
	other := open(t, 1)
	ok(t, drv.CtxPush(other.Context()))
	everything()
	if now := must(drv.CtxCurrent())(t); now != other.Context() {
		t.Errorf("the context was %#x and is %#x", other.Context(), now)
	}
	func() {
		defer func() { _ = recover() }()
		_ = d.Do(func() error {
			if now := must(drv.CtxCurrent())(t); now != d.Context() {
				t.Errorf("inside Do the context is %#x", now)
			}
			panic("f fails")
		})
	}()
	if now := must(drv.CtxCurrent())(t); now != other.Context() {
		t.Errorf("after a panic the context is %#x", now)
	}
	ok(t, drv.CtxPop())
}

// TestCloseBeforeWhatWasMade closes a device before the objects made on it. They stay usable, the last one to
// be freed releases the context, and the device makes no new objects.
func TestCloseBeforeWhatWasMade(t *testing.T) {
	c := fake(t)
	before := c.AllLive()
	d := must(cuda.Open(2, nil))(t)
	s := must(cuda.Alloc[int8](d, 10))(t)
	st := must(d.NewStream())(t)
	ok(t, d.Close(), d.Close())
	if c.Live(fakegpu.Contexts) == before[fakegpu.Contexts] {
		t.Error("the context went before what lives in it")
	}
	ok(t, s.FillOn(st, 1), st.Synchronize(), s.Free(), st.Close())
	if now := c.AllLive(); now != before {
		t.Errorf("left behind: %v, before: %v", now, before)
	}
	for name, err := range map[string]error{
		"alloc": second(cuda.Alloc[int8](d, 1)), "stream": second(d.NewStream()), "event": second(d.NewEvent()),
		"pool": second(d.NewPool(0)), "host": second(cuda.AllocHost[int8](d, 1)), "sync": d.Synchronize(),
	} {
		if !errors.Is(err, cuda.ErrClosed) {
			t.Errorf("%s on a closed device: %v", name, err)
		}
	}
}

// TestFailures makes each driver call fail once. The error names the call, and nothing
// stays allocated.
func TestFailures(t *testing.T) {
	c, d := fake(t), open(t, 0)
	st := closing(t, must(d.NewStream())(t), nil)
	live := c.AllLive()
	for function, call := range map[string]func() error{
		"cuMemAlloc_v2":                func() error { return second(cuda.Alloc[int8](d, 1)) },
		"cuMemAllocAsync":              func() error { return second(cuda.AllocOn[int8](st, nil, 1)) },
		"cuMemHostAlloc":               func() error { return second(cuda.AllocHost[int8](d, 1)) },
		"cuStreamCreateWithPriority":   func() error { return second(d.NewStream()) },
		"cuEventCreate":                func() error { return second(d.NewEvent()) },
		"cuMemPoolCreate":              func() error { return second(d.NewPool(1)) },
		"cuMemPoolSetAttribute":        func() error { return second(d.NewPool(1)) },
		"cuDevicePrimaryCtxRetain":     func() error { return second(cuda.Open(1, nil)) },
		"cuCtxPushCurrent_v2":          func() error { return second(cuda.Alloc[int8](d, 1)) },
		"cuStreamQuery":                func() error { return second(st.Done()) },
		"cuCtxSynchronize":             d.Synchronize,
		"cuMemGetInfo_v2":              func() error { _, _, err := d.Memory(); return err },
		"cuStreamIsCapturing":          func() error { return second(st.Capturing()) },
		"cuDeviceGetPCIBusId":          func() error { return second(d.PCIBusID()) },
		"cuDevicePrimaryCtxRelease_v2": func() error { return must(cuda.Open(3, nil))(t).Close() },
	} {
		fired := c.Fired()
		c.Fail(function, 1, 2)
		err := call()
		var e *cuda.Error
		if !errors.As(err, &e) || e.Func != function || e.Code != 2 || e.Name != "CUDA_ERROR_OUT_OF_MEMORY" {
			t.Errorf("%s: %v", function, err)
		}
		if c.Fired() != fired+1 {
			t.Errorf("%s was not called", function)
		}
		now := c.AllLive()
		if function == "cuDevicePrimaryCtxRelease_v2" {
			now[fakegpu.Contexts]-- // the failed release did nothing
		}
		if now != live {
			t.Errorf("%s left behind: %v, before: %v", function, now, live)
		}
		live = c.AllLive()
	}
	drv := must(cudasys.Load())(t)
	ok(t, drv.PrimaryCtxRelease(3))
}

// TestForgotten lets objects of every kind become garbage: each is reported, with this
// file, and stays allocated.
func TestForgotten(t *testing.T) {
	c := fake(t)
	var text proctest.Output
	d := must(cuda.Open(0, slog.New(slog.NewTextHandler(&text, nil))))(t)
	kept := must(cuda.Alloc[int8](d, 10))(t)
	live := c.AllLive()
	lose := func() {
		s := must(cuda.Alloc[int32](d, 11))(t)
		part := must(s.Slice(0, 5))(t)
		_ = must(cuda.AllocHost[int32](d, 13))(t)
		_, _, _ = must(d.NewStream())(t), must(d.NewEvent())(t), must(d.NewPool(0))(t)
		runtime.GC() // a sub-slice keeps its memory from being reported
		ok(t, part.Fill(1))
	}
	lose()
	wants := []string{"44 bytes of device memory", "52 bytes of pinned memory", "what=stream", "what=event", "what=\"memory pool\""}
	deadline := time.Now().Add(time.Minute)
	for _, want := range wants {
		for {
			runtime.GC()
			all := text.String()
			if strings.Contains(all, want) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("nobody reported %q in %s", want, all)
			}
			time.Sleep(time.Millisecond)
		}
	}
	all := text.String()
	if n := strings.Count(all, "made_at="); n != len(wants) || strings.Count(all, "device_test.go:") != n {
		t.Errorf("%d reports:\n%s", n, all)
	}
	now := c.AllLive()
	if now[fakegpu.Memory] != live[fakegpu.Memory]+1 || now[fakegpu.Streams] != live[fakegpu.Streams]+1 {
		t.Errorf("the collector freed it: %v, before %v", now, live)
	}
	ok(t, kept.Free(), d.Close())
}

// TestNoDriver runs a process that cannot find the driver.
func TestNoDriver(t *testing.T) {
	cmd := exec.Command(proctest.Self(t))
	cmd.Env = append(os.Environ(), "TUTTI_TEST_PROBE=1", "TUTTI_CUDA_LIBRARY=/no/such/libcuda.so.1")
	out, err := cmd.CombinedOutput()
	ok(t, err)
	for _, want := range []string{"/no/such/libcuda.so.1: cannot open", "TUTTI_CUDA_LIBRARY"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q does not say %q", out, want)
		}
	}
}

func TestManyGoroutines(t *testing.T) {
	n := must(cuda.Devices())(t)
	devices := make([]*cuda.Device, min(n, 4))
	for i := range devices {
		devices[i] = open(t, i)
	}
	errs := make(chan error)
	for g := range 8 {
		go func() { errs <- busy(devices[g%len(devices)], int32(g)) }()
	}
	for range 8 {
		ok(t, <-errs)
	}
}

// busy uses a stream and memory of a device and checks the contents, as one of several goroutines. It returns
// the first error.
func busy(d *cuda.Device, v int32) error {
	st, err := d.NewStream()
	if err != nil {
		return err
	}
	defer st.Close()
	for range 20 {
		s, err := cuda.Alloc[int32](d, 100)
		if err != nil {
			return err
		}
		got := make([]int32, 100)
		if err := errors.Join(s.FillOn(st, v), s.CopyToOn(st, got), s.Free()); err != nil {
			return err
		}
		if got[99] != v {
			return fmt.Errorf("read %d, not %d", got[99], v)
		}
	}
	return nil
}
