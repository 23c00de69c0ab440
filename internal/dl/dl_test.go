package dl_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/tutti-go/tutti/internal/dl"
)

// libc opens a library that exists wherever this test runs.
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

// TestOpenNamesEveryPathTried opens a file that is no library and a name that does not exist. The error lists
// each path once with its reason, and ends with the hint.
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

func TestNotFoundSaysEachReasonOnce(t *testing.T) {
	e := &dl.NotFoundError{Library: "X", Tried: []dl.Attempt{{"a", "gone"}, {"b", "gone"}, {"c", "bad"}}, Hint: "get it"}
	if got, want := e.Error(), "X was not found (tried a, b: gone; c: bad): get it"; got != want {
		t.Errorf("%q, not %q", got, want)
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

// TestManyArguments passes arguments in registers and on the stack.
func TestManyArguments(t *testing.T) {
	lib := libc(t)
	fr := dl.NewFrame()
	defer fr.Done()
	room, format := make([]byte, 100), dl.CString("%d %d %d %d %d %d %d %ld %d")
	n := fr.Call(lib.Func("snprintf"), fr.Hold(0, unsafe.Pointer(&room[0])), uintptr(len(room)),
		fr.Hold(1, unsafe.Pointer(&format[0])), 1, 2, 3, 4, 5, 6, 7, 1<<40, 9)
	if want := "1 2 3 4 5 6 7 1099511627776 9"; string(room[:n]) != want {
		t.Errorf("%q, want %q", room[:n], want)
	}
}

// TestCallIn checks that nothing more is called when the first call of the bracket fails. The
// next random number shows whether the last call was made.
func TestCallIn(t *testing.T) {
	lib := libc(t)
	call := func(name string, args ...uintptr) uintptr {
		fr := dl.NewFrame()
		defer fr.Done()
		return fr.Call(lib.Func(name), args...)
	}
	call("srand", 1)
	next := []uintptr{call("rand"), call("rand")}
	for arg, want := range map[uintptr][3]uintptr{0: {0, 7, next[1]}, 5: {5, 0, next[0]}} {
		call("srand", 1)
		b := &dl.Bracket{Before: lib.Func("abs"), Arg: arg, After: lib.Func("rand")}
		before, result := dl.CallIn(b, lib.Func("labs"), &dl.Args{7})
		if got := [3]uintptr{before, result, call("rand")}; got != want {
			t.Errorf("abs(%d), labs(7), and the next number: %d, want %d", arg, got, want)
		}
	}
	call("srand", 1)
	before, result := dl.CallIn(nil, lib.Func("labs"), &dl.Args{7})
	if got := [3]uintptr{before, result, call("rand")}; got != [3]uintptr{0, 7, next[0]} {
		t.Errorf("without a bracket: %d", got)
	}
}

// TestStackWhileCalled makes calls while stacks grow and shrink: the arguments are on the
// stack.
func TestStackWhileCalled(t *testing.T) {
	lib := libc(t)
	// The garbage collector runs during the first call.
	nap, labs := lib.Func("usleep"), lib.Func("labs")
	b := &dl.Bracket{Before: nap, Arg: 100, After: lib.Func("time")}
	done := make(chan error)
	for i := range 4 {
		go func() { done <- deep(20+i, b, labs, uintptr(i)) }()
	}
	for range 4 {
		runtime.GC()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// deep makes a call with arguments on the stack and recurses, so that the goroutine's stack grows. It returns
// an error if a result or the stack of a caller is wrong.
func deep(depth int, b *dl.Bracket, f dl.Func, x uintptr) error {
	var room [1 << 10]byte
	room[depth] = byte(depth)
	before, result := dl.CallIn(b, f, &dl.Args{x})
	for int32(before) == -1 { // a signal of the runtime has interrupted usleep
		before, result = dl.CallIn(b, f, &dl.Args{x})
	}
	if before != 0 || result != x {
		return fmt.Errorf("at depth %d: %d, %d, want %d", depth, before, result, x)
	}
	if depth == 0 {
		return nil
	}
	if err := deep(depth-1, b, f, x+1); err != nil {
		return err
	}
	if room[depth] != byte(depth) {
		return fmt.Errorf("the stack at depth %d was written to", depth)
	}
	return nil
}

func TestCallsDoNotAllocate(t *testing.T) {
	f := libc(t).Func("abs")
	n := testing.AllocsPerRun(1000, func() {
		fr := dl.NewFrame()
		if r := int32(fr.Call(f, 0xfffffffb)); r != 5 {
			t.Errorf("abs(-5) is %d", r)
		}
		fr.Done()
		dl.CallIn(nil, f, &dl.Args{5})
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

func BenchmarkCallIn(b *testing.B) {
	lib := libc(b)
	f := lib.Func("labs")
	around := &dl.Bracket{Before: lib.Func("abs"), After: f}
	b.ReportAllocs()
	for b.Loop() {
		dl.CallIn(around, f, &dl.Args{5})
	}
}

// TestCallAll checks that calls are made in order until one returns a number other than zero
// or stop is set, and that the bracket's calls are made once.
func TestCallAll(t *testing.T) {
	lib := libc(t)
	abs := lib.Func("abs")
	var list []dl.Call
	for _, x := range []uintptr{0, 0, 5, 0, 7} {
		list = append(list, dl.Call{Fn: abs, Args: dl.Args{x}})
	}
	call := func(name string, args ...uintptr) uintptr { return dl.NewFrame().Call(lib.Func(name), args...) }
	call("srand", 1)
	next := []uintptr{call("rand"), call("rand")}
	for _, c := range []struct {
		arg                uintptr
		from               int
		stop               uint32
		before, result     uintptr
		made, randomsTaken int
	}{
		{0, 0, 0, 0, 5, 3, 1},
		{0, 3, 0, 0, 7, 2, 1},
		{0, 4, 0, 0, 7, 1, 1},
		{0, 4, 1, 0, 7, 1, 1},
		{0, 0, 1, 0, 0, 1, 1},
		{9, 0, 0, 9, 0, 0, 0},
		{0, 5, 0, 0, 0, 0, 0},
	} {
		var stop atomic.Uint32
		stop.Store(c.stop)
		call("srand", 1)
		b := &dl.Bracket{Before: abs, Arg: c.arg, After: lib.Func("rand")}
		before, result, made := dl.CallAll(b, list[c.from:], &stop)
		if before != c.before || result != c.result || made != c.made || call("rand") != next[c.randomsTaken] {
			t.Errorf("%+v: %d, %d, %d", c, before, result, made)
		}
	}
	if before, result, made := dl.CallAll(nil, list, new(atomic.Uint32)); before != 0 || result != 5 || made != 3 {
		t.Errorf("without a bracket: %d, %d, %d", before, result, made)
	}
}
