package gpu

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/nccl"
)

// control controls the fake libraries. It is nil with the real ones.
var control *fakegpu.Control

// TestMain runs the tests on up to 16 fake devices, or one rank's program if TUTTI_TEST_RANK is set. A
// program that fails is printed and makes the process exit with 1.
func TestMain(m *testing.M) {
	// The suite has groups of up to 16 ranks, each on a device of its own.
	if os.Getenv("TUTTI_FAKE_DEVICES") == "" {
		_ = os.Setenv("TUTTI_FAKE_DEVICES", "16")
	}
	run := m.Run
	if os.Getenv("TUTTI_TEST_RANK") != "" {
		run = func() int {
			if err := rankProcess(); err != nil {
				fmt.Println(err)
				return 1
			}
			return 0
		}
	}
	os.Exit(fakegpu.Main(&control, run))
}

func ok(tb testing.TB, errs ...error) {
	tb.Helper()
	for _, err := range errs {
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// newEngines creates a group of goroutine ranks, each on a device of its own. It skips the test if there are
// fewer devices. The caller closes the engines.
func newEngines(tb testing.TB, ranks int, opt engine.DeviceOptions) []*Engine {
	tb.Helper()
	devices, err := cuda.Devices()
	ok(tb, err)
	if devices < ranks {
		tb.Skipf("%d devices: too few for %d ranks in one process", devices, ranks)
	}
	var lib *nccl.Library
	if !opt.HostStaging {
		lib, err = nccl.Load("")
		ok(tb, err)
	}
	engines := make([]*Engine, ranks)
	for r, cpu := range shm.NewLocal(ranks, shm.Options{Timeout: opt.Timeout}) {
		dev, err := cuda.Open(r, nil)
		ok(tb, err)
		engines[r], err = New(cpu, lib, dev, opt)
		ok(tb, err)
	}
	return engines
}

// world creates groups for the conformance suite that carry out its operations in device memory.
func world(tb testing.TB, ranks int) []engine.Engine {
	tb.Helper()
	engines := make([]engine.Engine, ranks)
	for r, e := range newEngines(tb, ranks, engine.DeviceOptions{}) {
		engines[r] = newTwin(e)
	}
	return engines
}

// clean fails the test if it leaks resources of a device. It waits up to a minute for communicators that
// goroutines still abort. It checks nothing on a real GPU.
func clean(t testing.TB) {
	t.Helper()
	if control == nil {
		return
	}
	before := control.AllLive()
	t.Cleanup(func() {
		// Abandoned communicators end on their own.
		for begin := time.Now(); control.Left(before) && time.Since(begin) < time.Minute; {
			time.Sleep(time.Millisecond)
		}
		if !t.Failed() && control.Left(before) {
			t.Errorf("left behind: %v, before: %v", control.AllLive(), before)
		}
	})
}

// stagedWorld is world with host staging, in slots of that many bytes.
func stagedWorld(slot int) enginetest.World {
	return func(tb testing.TB, ranks int) []engine.Engine {
		tb.Helper()
		engines := make([]engine.Engine, ranks)
		for r, e := range newEngines(tb, ranks, engine.DeviceOptions{HostStaging: true, Slot: slot}) {
			engines[r] = newTwin(e)
		}
		return engines
	}
}

func TestEngine(t *testing.T) {
	clean(t)
	enginetest.Run(t, world, enginetest.Options{Light: true, Numbers: true, ExactReceives: true, NCCL: true, Ranks: []int{3}, Brief: 5})
}

var _ engine.DeviceEngine = (*Engine)(nil)
