package nccl_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/nccl"
)

// control controls the fake libraries; nil: the tests run on real ones.
var control *fakegpu.Control

const deadline = 2 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv("TUTTI_TEST_RANK") != "" {
		if err := rankProcess(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv("TUTTI_TEST_PROBE") != "" {
		fmt.Print(nccl.Available())
		return
	}
	os.Exit(fakegpu.Main(&control, m.Run))
}

// fake returns the fake GPU's control, or skips the test on real libraries.
func fake(t testing.TB) *fakegpu.Control {
	t.Helper()
	if control == nil {
		t.Skip("this test needs the fake GPU")
	}
	t.Cleanup(control.Reset)
	return control
}

func load(t testing.TB) *nccl.Library {
	t.Helper()
	l, err := nccl.Load("")
	ok(t, err)
	return l
}

func ok(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// free is for deferred calls.
func free(v interface{ Free() error }) { _ = v.Free() }

// clean fails the test if it leaves objects on the fake GPU.
func clean(t testing.TB) {
	t.Helper()
	if control == nil {
		return
	}
	before := control.AllLive()
	t.Cleanup(func() {
		if !t.Failed() && control.Left(before) {
			t.Errorf("left behind: %v, before: %v", control.AllLive(), before)
		}
	})
}

// gone waits until cancelled calls have ended in the background.
func gone(t testing.TB, is func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("left behind: %v", control.AllLive())
		}
	}
}

// A rank is the state of one rank's program.
type rank struct {
	lib    *nccl.Library
	dev    *cuda.Device
	comm   *nccl.Comm
	stream *cuda.Stream
	r, n   int
}

// A program is the function that each rank runs.
type program func(ctx context.Context, r *rank) error

// start makes a rank's device, stream and communicator, runs a program on the calling goroutine, and frees
// them. It aborts the communicator if the program fails.
func start(ctx context.Context, lib *nccl.Library, ordinal int, id nccl.UniqueID, r, n int, cfg nccl.Config, p program) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("rank %d: %w", r, err)
		}
	}()
	dev, err := cuda.Open(ordinal, nil)
	if err != nil {
		return err
	}
	defer dev.Close()
	stream, err := dev.NewStream()
	if err != nil {
		return err
	}
	defer stream.Close()
	comm, err := lib.Init(ctx, dev, id, r, n, cfg)
	if err != nil {
		return err
	}
	if comm.Rank() != r || comm.Size() != n || comm.Device() != dev || comm.Handle() == 0 || comm.Library() != lib {
		return fmt.Errorf("rank %d of %d on %v", comm.Rank(), comm.Size(), comm.Device())
	}
	err = p(ctx, &rank{lib, dev, comm, stream, r, n})
	if err != nil {
		return errors.Join(err, comm.Abort(ctx))
	}
	return errors.Join(stream.Wait(ctx), comm.Close(), comm.Close())
}

// together runs a program on n ranks of this process, each with its own device and goroutine. The first error
// cancels the context of the others. It returns all errors.
func together(t testing.TB, lib *nccl.Library, n int, cfg nccl.Config, p program) error {
	t.Helper()
	devices, err := cuda.Devices()
	ok(t, err)
	if devices < n {
		t.Skipf("%d devices: too few for %d ranks in one process", devices, n)
	}
	id, err := lib.NewID()
	ok(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	errs := make(chan error, n)
	for r := range n {
		go func() { errs <- start(ctx, lib, r, id, r, n, cfg, p) }()
	}
	var all []error
	for range n {
		if err := <-errs; err != nil {
			all = append(all, err)
			cancel() // the other ranks wait for this one
		}
	}
	return errors.Join(all...)
}

// rankProcess is the process of one rank: it runs the program that the environment names, with the id that
// the environment holds, on device 0. deadline bounds it.
func rankProcess() error {
	number := func(name string) int {
		v, _ := strconv.Atoi(os.Getenv(name))
		return v
	}
	text, err := hex.DecodeString(os.Getenv("TUTTI_TEST_ID"))
	if err != nil {
		return err
	}
	lib, err := nccl.Load("")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	r, n := number("TUTTI_TEST_RANK"), number("TUTTI_TEST_SIZE")
	cfg := nccl.Config{NonBlocking: os.Getenv("TUTTI_TEST_NONBLOCKING") != ""}
	p := programs[os.Getenv("TUTTI_TEST_PROGRAM")]
	if p == nil {
		return errors.New("no such program")
	}
	return start(ctx, lib, 0, nccl.UniqueID(text), r, n, cfg, p)
}

// missing reports whether an error says that NCCL is too old.
func missing(err error) bool {
	var v *cuda.VersionError
	return errors.As(err, &v) && v.Need != "" && v.Found != ""
}
