package ncclsys

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/internal/dl"
	"github.com/tutti-go/tutti/internal/fakegpu"
)

// load builds the fake NCCL of a version and loads it. It skips the test without a C compiler.
func load(t *testing.T, version int) *Library {
	t.Helper()
	libs, err := fakegpu.Build(version)
	if errors.Is(err, fakegpu.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := Load(libs.NCCL)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestSymbols compares the table with the symbols of the fake library of each version.
func TestSymbols(t *testing.T) {
	for _, v := range fakegpu.Versions {
		l := load(t, v)
		if l.Version() != v {
			t.Errorf("version %d, not %d", l.Version(), v)
		}
		for i, s := range symbols {
			if l.has(i) != (v >= s.since) {
				t.Errorf("%s has %s: %v", l.VersionText(), s.name, l.has(i))
			}
		}
		if l.Native() != (v >= 22800) {
			t.Errorf("%s is native: %v", l.VersionText(), l.Native())
		}
	}
}

func TestMissing(t *testing.T) {
	l := load(t, 21403)
	var m *dl.MissingError
	err := l.CommSplit(0, 0, 0, new(Slot), nil)
	if !errors.As(err, &m) || err.Error() != "ncclCommSplit needs NCCL 2.18, found 2.14.3" {
		t.Error(err)
	}
	if err := l.Needs("a setting", 22807); err == nil || err.Error() != "a setting needs NCCL 2.28.7, found 2.14.3" {
		t.Error(err)
	}
	if err := l.Needs("a setting", 21400); err != nil {
		t.Error(err)
	}
}

// TestErrors checks the errors for a failed call, an unknown code, the code for calls in progress, and the
// end of a group that was not begun.
func TestErrors(t *testing.T) {
	l := load(t, fakegpu.Newest)
	err := l.CommDestroy(12345)
	var e *Error
	if !errors.As(err, &e) || e.Code != 4 || e.Func != "ncclCommDestroy" || e.Text != "invalid argument" {
		t.Error(err)
	}
	if err := l.Failure("ncclX", 99); !strings.Contains(err.Error(), "an unknown result (99)") {
		t.Error(err)
	}
	if err := l.Failure("ncclX", 7); err != ErrInProgress {
		t.Error(err)
	}
	if err := l.GroupEnd(); err == nil {
		t.Error("a group that was not begun was ended")
	}
}

func TestVersionText(t *testing.T) {
	for code, want := range map[int]string{2807: "2.8.7", 21403: "2.14.3", 22800: "2.28", 23007: "2.30.7"} {
		if got := versionText(code); got != want {
			t.Errorf("%d is %q, not %q", code, got, want)
		}
	}
}

// TestLayout checks the sizes and offsets of structures that NCCL reads, against its header.
func TestLayout(t *testing.T) {
	var c Config
	for name, at := range map[string][2]uintptr{
		"blocking": {unsafe.Offsetof(c.Blocking), 16}, "netName": {unsafe.Offsetof(c.NetName), 32},
		"commName": {unsafe.Offsetof(c.CommName), 48}, "graphStreamOrdering": {unsafe.Offsetof(c.GraphStreamOrdering), 92},
		"size": {unsafe.Sizeof(c), 96},
	} {
		if at[0] != at[1] {
			t.Errorf("%s is at %d, not %d", name, at[0], at[1])
		}
	}
	if n := unsafe.Sizeof(simInfo{}); n != 24 {
		t.Errorf("ncclSimInfo_t has %d bytes", n)
	}
}

// TestFind checks the order of candidates: only TUTTI_NCCL_LIBRARY if it is set, otherwise the plain name and
// then PyTorch's wheel. The error of a failed search lists all paths.
func TestFind(t *testing.T) {
	t.Setenv(LibraryEnv, "/named/libnccl.so")
	if c := candidates(); len(c) != 1 || c[0] != "/named/libnccl.so" {
		t.Error(c)
	}
	t.Setenv(LibraryEnv, "")
	venv := t.TempDir()
	wheel := filepath.Join(venv, "lib/python3.12/site-packages/nvidia/nccl/lib")
	if err := os.MkdirAll(wheel, 0o700); err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(wheel, soname)
	if err := os.WriteFile(want, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VIRTUAL_ENV", venv)
	c := candidates()
	if len(c) < 5 || c[0] != soname || c[1] != want {
		t.Error(c)
	}
	_, err := dl.Open("NCCL", hint, want, "/no/such/"+soname)
	var nf *dl.NotFoundError
	if !errors.As(err, &nf) || len(nf.Tried) != 2 || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), LibraryEnv) {
		t.Error(err)
	}
}
