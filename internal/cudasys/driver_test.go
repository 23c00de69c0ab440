package cudasys

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/internal/dl"
	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/internal/race"
)

// load builds the fake driver and loads it. It skips the test without a C compiler.
func load(t *testing.T) *Driver {
	t.Helper()
	libs, err := fakegpu.Build(fakegpu.Newest)
	if errors.Is(err, fakegpu.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(LibraryEnv, libs.CUDA)
	d, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestEverySymbolIsThere also checks that the fake GPU has every function of the table.
func TestEverySymbolIsThere(t *testing.T) {
	d := load(t)
	for i, f := range d.fn {
		if f == 0 {
			t.Errorf("no %s", symbols[i].name)
		}
	}
	if d.Path() != os.Getenv(LibraryEnv) {
		t.Errorf("loaded %s", d.Path())
	}
}

// TestErrors checks the errors for a failed call, an unknown code and a function that the library lacks.
func TestErrors(t *testing.T) {
	d := load(t)
	if err := d.Init(); err != nil {
		t.Fatal(err)
	}
	_, err := d.Device(99)
	var e *Error
	if !errors.As(err, &e) || e.Code != 101 || e.Name != "CUDA_ERROR_INVALID_DEVICE" || e.Func != "cuDeviceGet" {
		t.Errorf("a wrong device: %v", err)
	}
	if err := d.failure(fnInit, 4711, nil); !strings.Contains(err.Error(), "unknown code 4711") {
		t.Errorf("an unknown code: %v", err)
	}
	d.fn[fnMemAllocAsync] = 0
	var m *dl.MissingError
	if _, err := d.MemAllocAsync(1, 0, 0); !errors.As(err, &m) || m.Need != "11.2" || m.Found != "13.0" {
		t.Errorf("a missing function: %v", err)
	}
}

func TestNotFound(t *testing.T) {
	t.Setenv(LibraryEnv, filepath.Join(t.TempDir(), "libcuda.so.1"))
	_, err := Load()
	var nf *dl.NotFoundError
	if !errors.As(err, &nf) || len(nf.Tried) != 1 || nf.Tried[0].Path != os.Getenv(LibraryEnv) {
		t.Errorf("a named library that is not there: %v", err)
	}
	t.Setenv(LibraryEnv, "")
	if n := len(candidates()); n < 5 {
		t.Errorf("%d candidates", n)
	}
}

func TestPoolPropsLayout(t *testing.T) {
	if n := unsafe.Sizeof(poolProps{}); n != 88 {
		t.Errorf("CUmemPoolProps has %d bytes, not 88", n)
	}
}

// TestCallsDoNotAllocate checks that driver calls allocate nothing. The goroutine is locked to its thread,
// because the current context belongs to the thread.
func TestCallsDoNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector pools drop what they are given")
	}
	d := load(t)
	if err := d.Init(); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, err := d.PrimaryCtxRetain(0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.PrimaryCtxRelease(0); err != nil {
			t.Error(err)
		}
	}()
	n := testing.AllocsPerRun(1000, func() {
		if err := d.CtxPush(ctx); err != nil {
			t.Error(err)
		}
		if err := d.CtxPop(); err != nil {
			t.Error(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
