package gpu_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
	"github.com/tutti-go/tutti/internal/fakegpu"
)

// control controls the fake libraries; nil: the tests run on real ones.
var control *fakegpu.Control

const deadline = time.Minute

func TestMain(m *testing.M) {
	run := m.Run
	if os.Getenv(missingEnv) != "" {
		run = func() int {
			if err := withoutNCCL(); err != nil {
				fmt.Println(err)
				return 1
			}
			fmt.Println("as it should be")
			return 0
		}
	}
	os.Exit(fakegpu.Main(&control, run))
}

func ok(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A rank is the state of one rank's program.
type rank struct {
	*tutti.Comm
	dev *cuda.Device
	x   *cuda.Slice[float32] // a hundred elements, each the rank's number plus one
}

// run runs a program on n ranks, each on a goroutine with its own device, and returns the first error;
// RunLocal then aborts the other ranks. It checks that nothing stays allocated on the devices. It skips the
// test if there are fewer devices.
func run(t *testing.T, n int, cfg tutti.Config, program func(ctx context.Context, r *rank) error) error {
	t.Helper()
	devices, err := cuda.Devices()
	ok(t, err)
	if devices < n {
		t.Skipf("%d devices: too few for %d ranks in one process", devices, n)
	}
	if control != nil {
		before := control.AllLive()
		defer func() {
			for begin := time.Now(); control.Left(before); time.Sleep(time.Millisecond) {
				if time.Since(begin) > deadline {
					t.Errorf("left behind: %v, before: %v", control.AllLive(), before)
					return
				}
			}
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	cfg.Device = gpu.Auto()
	return tutti.RunLocal(ctx, n, cfg, func(ctx context.Context, c *tutti.Comm) error {
		dev, err := cuda.Open(c.Rank(), nil)
		if err != nil {
			return err
		}
		defer dev.Close()
		x, err := cuda.Alloc[float32](dev, 100)
		if err != nil {
			return err
		}
		defer free(x)
		if err := x.Fill(float32(c.Rank() + 1)); err != nil {
			return err
		}
		return program(ctx, &rank{c, dev, x})
	})
}

// holds checks every element of x.
func (r *rank) holds(want float32) error {
	got := make([]float32, r.x.Len())
	if err := r.x.CopyTo(got); err != nil {
		return err
	}
	for i, v := range got {
		if v != want {
			return fmt.Errorf("rank %d: element %d is %v, want %v", r.Rank(), i, v, want)
		}
	}
	return nil
}

// free is for deferred calls.
func free(v interface{ Free() error }) { _ = v.Free() }

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
