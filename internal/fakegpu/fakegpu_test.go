package fakegpu_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/dl"
	"github.com/tutti-go/tutti/internal/fakegpu"
)

func build(t *testing.T, version int) fakegpu.Libraries {
	t.Helper()
	libs, err := fakegpu.Build(version)
	if errors.Is(err, fakegpu.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return libs
}

// TestVersionsDiffer checks that the library of each version reports that version and lacks newer symbols.
func TestVersionsDiffer(t *testing.T) {
	since := map[string]int{
		"ncclAllReduce": 0, "ncclCommSplit": 21800, "ncclMemAlloc": 21900, "ncclGroupSimulateEnd": 22200,
		"ncclCommInitRankScalable": 22300, "ncclCommShrink": 22700, "ncclAlltoAll": 22800, "ncclCommRevoke": 22807,
		"ncclCommGrow": 22900, "ncclCommMemStats": 22907,
	}
	for _, v := range fakegpu.Versions {
		libs := build(t, v)
		lib, err := dl.Open("NCCL", "", libs.NCCL)
		if err != nil {
			t.Fatal(err)
		}
		fr := dl.NewFrame()
		if rc := int32(fr.Call(lib.Func("ncclGetVersion"), fr.Out(0))); rc != 0 || int(fr.Result(0)) != v {
			t.Errorf("version %d says %d, %d", v, rc, fr.Result(0))
		}
		fr.Done()
		for name, first := range since {
			if has := lib.Func(name) != 0; has != (v >= first) {
				t.Errorf("version %d has %s: %v", v, name, has)
			}
		}
	}
}

// TestFaults lets the second of three calls fail, and then a call hang. The hanging call runs in a goroutine,
// which returns after Release.
func TestFaults(t *testing.T) {
	libs := build(t, fakegpu.Newest)
	c, err := fakegpu.NewControl(libs.CUDA)
	if err != nil {
		t.Fatal(err)
	}
	lib, err := dl.Open("CUDA", "", libs.CUDA)
	if err != nil {
		t.Fatal(err)
	}
	version := func() int32 {
		fr := dl.NewFrame()
		defer fr.Done()
		return int32(fr.Call(lib.Func("cuDriverGetVersion"), fr.Out(0)))
	}
	before, fired := c.Calls("cuDriverGetVersion"), c.Fired()
	c.Fail("cuDriverGetVersion", 2, 700)
	for i, want := range []int32{0, 700, 0} {
		if rc := version(); rc != want {
			t.Errorf("call %d returned %d, want %d", i, rc, want)
		}
	}
	if n := c.Calls("cuDriverGetVersion") - before; n != 3 {
		t.Errorf("%d calls", n)
	}
	if n := c.Fired() - fired; n != 1 {
		t.Errorf("%d faults", n)
	}
	c.Fail("cuDriverGetVersion", 1, fakegpu.Hang)
	done := make(chan int32)
	go func() { done <- version() }()
	for c.Fired() == fired+1 {
		time.Sleep(time.Millisecond)
	}
	select {
	case <-done:
		t.Error("the call did not hang")
	default:
	}
	c.Release()
	if rc := <-done; rc != 0 {
		t.Errorf("released: %d", rc)
	}
}
