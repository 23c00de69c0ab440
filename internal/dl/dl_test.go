package dl_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/internal/dl"
)

// libc opens a library that is there whenever this test's binary runs.
func libc(t testing.TB) *dl.Library {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("libraries are loaded on linux only")
	}
	lib, err := dl.Open("libc", "", "libc.so.6")
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

func TestOpenNamesEveryPathTried(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "libbad.so")
	if err := os.WriteFile(bad, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := dl.Open("Nothing", "install nothing", "libnothing.so.7", bad, "libnothing.so.7")
	var nf *dl.NotFoundError
	if !errors.As(err, &nf) {
		t.Fatalf("error is %v", err)
	}
	if len(nf.Tried) != 2 || nf.Tried[0].Path != "libnothing.so.7" || nf.Tried[1].Path != bad {
		t.Errorf("tried %v", nf.Tried)
	}
	for _, a := range nf.Tried {
		if a.Reason == "" || !strings.Contains(err.Error(), a.Path+": "+a.Reason) {
			t.Errorf("%q does not say why %s failed", err, a.Path)
		}
	}
	if !strings.HasSuffix(err.Error(), "install nothing") {
		t.Errorf("%q has no hint", err)
	}
}

func TestOpenTakesTheFirstThatWorks(t *testing.T) {
	libc(t)
	lib, err := dl.Open("libc", "", "libnothing.so.7", "libc.so.6")
	if err != nil || lib.Path() != "libc.so.6" {
		t.Fatalf("%v, %v", lib, err)
	}
}

func TestCall(t *testing.T) {
	lib := libc(t)
	if f := lib.Func("no_such_function"); f != 0 {
		t.Errorf("a missing function is %#x", f)
	}
	if pid := int(int32(dl.NewFrame().Call(lib.Func("getpid")))); pid != os.Getpid() {
		t.Errorf("getpid is %d, not %d", pid, os.Getpid())
	}
	text := dl.String(dl.NewFrame().Call(lib.Func("strerror"), 2))
	if text != "No such file or directory" {
		t.Errorf("strerror(2) is %q", text)
	}
}

func TestBindPassesStringsAndNumbers(t *testing.T) {
	lib := libc(t)
	var strlen func(string) uintptr
	dl.Bind(&strlen, lib.Func("strlen"))
	if n := strlen("five."); n != 5 {
		t.Errorf("strlen is %d", n)
	}
}

func TestFrame(t *testing.T) {
	lib := libc(t)
	fr := dl.NewFrame()
	defer fr.Done()
	text := dl.CString("123 x")
	end := fr.Out(0)
	if n := fr.Call(lib.Func("strtol"), fr.Hold(0, unsafe.Pointer(&text[0])), end, 10); n != 123 {
		t.Errorf("strtol is %d", n)
	}
	if at := uintptr(fr.Result(0)); at != uintptr(unsafe.Pointer(&text[3])) {
		t.Errorf("strtol stopped at %#x", at)
	}
}

func TestCallsDoNotAllocate(t *testing.T) {
	f := libc(t).Func("abs")
	n := testing.AllocsPerRun(1000, func() {
		fr := dl.NewFrame()
		if r := int32(fr.Call(f, 0xfffffffb)); r != 5 {
			t.Errorf("abs(-5) is %d", r)
		}
		fr.Done()
	})
	if n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

func TestMissingError(t *testing.T) {
	err := error(&dl.MissingError{Library: "NCCL", Symbol: "ncclCommSplit", Need: "2.18", Found: "2.14.3"})
	if got := err.Error(); got != "ncclCommSplit needs NCCL 2.18, found 2.14.3" {
		t.Error(got)
	}
}

func BenchmarkCall(b *testing.B) {
	f := libc(b).Func("abs")
	b.ReportAllocs()
	for b.Loop() {
		fr := dl.NewFrame()
		fr.Call(f, 5)
		fr.Done()
	}
}
