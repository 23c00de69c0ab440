package gpu_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/gpu"
	"github.com/tutti-go/tutti/internal/proctest"
)

// A counter counts the lines of a log that contain a word.
type counter struct {
	word string
	n    atomic.Int64
}

func (c *counter) Write(b []byte) (int, error) {
	c.n.Add(int64(bytes.Count(b, []byte(c.word))))
	return len(b), nil
}

// TestHostStaging enables it by Config and by the environment. Calls are counted, and each Comm logs it
// once.
func TestHostStaging(t *testing.T) {
	for _, env := range []string{"", "1", "true"} {
		t.Run("env="+env, func(t *testing.T) {
			warned := &counter{word: "HostStaging"}
			cfg := tutti.Config{HostStaging: env == "", Logger: slog.New(slog.NewTextHandler(warned, nil))}
			t.Setenv("TUTTI_HOST_STAGING", env)
			ok(t, run(t, 2, cfg, func(ctx context.Context, r *rank) error {
				host := []int{1}
				err := first(r.AllReduce(ctx, gpu.Of(r.x), tutti.Sum), r.AllReduce(ctx, gpu.Of(r.x), tutti.Avg), r.holds(3),
					r.AllReduce(ctx, tutti.Of(host), tutti.Sum))
				if err != nil {
					return err
				}
				if n := r.Stats().Staged; n != 2 {
					return fmt.Errorf("%d calls were counted", n)
				}
				return nil
			}))
			if n := warned.n.Load(); n != 2 {
				t.Errorf("%d warnings on two ranks", n)
			}
		})
	}
}

// TestStagedScan checks that host staging has what NCCL lacks: Scan, bitwise operators and integers of 16 bits.
func TestStagedScan(t *testing.T) {
	ok(t, run(t, 2, tutti.Config{HostStaging: true}, func(ctx context.Context, r *rank) error {
		me := uint16(r.Rank())
		s, err := cuda.Alloc[uint16](r.dev, 2)
		if err != nil {
			return err
		}
		defer free(s)
		x, host := gpu.Of(s), []uint16{1 + me, 4 + me}
		if err := first(s.CopyFrom(host), r.Scan(ctx, x, x, tutti.Sum), r.ExScan(ctx, x, x, tutti.Prod), s.CopyTo(host)); err != nil {
			return err
		}
		// The Scan leaves the source of rank 0 there, and the ExScan copies it to rank 1.
		if want := []uint16{1, 4}; !slices.Equal(host, want) {
			return fmt.Errorf("%d, want %d", host, want)
		}
		if err := first(r.AllReduce(ctx, x, tutti.Xor), s.CopyTo(host)); err != nil {
			return err
		}
		if want := []uint16{0, 0}; !slices.Equal(host, want) {
			return fmt.Errorf("%d, want %d", host, want)
		}
		return nil
	}))
}

// TestNotStaged uses a Comm with NCCL and one without a device: both count nothing.
func TestNotStaged(t *testing.T) {
	ok(t, run(t, 2, tutti.Config{}, func(ctx context.Context, r *rank) error {
		if err := first(r.AllReduce(ctx, gpu.Of(r.x), tutti.Sum), r.holds(3)); err != nil {
			return err
		}
		if n := r.Stats().Staged; n != 0 {
			return fmt.Errorf("%d calls were counted", n)
		}
		return nil
	}))
	ok(t, tutti.RunLocal(t.Context(), 1, tutti.Config{HostStaging: true}, func(ctx context.Context, c *tutti.Comm) error {
		err := c.AllReduce(ctx, tutti.DeviceBuffer(0, nil, tutti.Float32Type, 0), tutti.Sum)
		if !errors.Is(err, tutti.ErrNoDevicePath) || !strings.Contains(err.Error(), "gpu.Auto()") || c.Stats().Staged != 0 {
			return fmt.Errorf("a Comm without a device: %w", err)
		}
		return nil
	}))
}

// TestMissingNCCL runs this binary again without NCCL. Making a Comm fails; the error lists the paths
// that were tried and the alternative, which works.
func TestMissingNCCL(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), proctest.Self(t))
	cmd.Env = append(os.Environ(), "TUTTI_NCCL_LIBRARY=/no/such/libnccl.so.2", missingEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "as it should be") {
		t.Errorf("%v\n%s", err, out)
	}
}

const missingEnv = "TUTTI_TEST_MISSING"

// withoutNCCL is the process of TestMissingNCCL.
func withoutNCCL() error {
	_, err := tutti.Local(1, tutti.Config{Device: gpu.Auto()})
	for _, word := range []string{"/no/such/libnccl.so.2", "HostStaging", "TUTTI_HOST_STAGING=1"} {
		if !errors.Is(err, tutti.ErrNoDevicePath) || !strings.Contains(err.Error(), word) {
			return fmt.Errorf("no NCCL is reported as %w, without %q", err, word)
		}
	}
	comms, err := tutti.Local(1, tutti.Config{Device: gpu.Auto(), HostStaging: true})
	if err != nil {
		return err
	}
	return comms[0].Close()
}
