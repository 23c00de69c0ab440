// Package proctest is what tests share that start processes.
package proctest

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Self is the path of the running test binary, to be started once more. The
// test is skipped where that cannot be: under an emulator.
func Self(tb testing.TB) string {
	tb.Helper()
	if Emulated() {
		tb.Skip("an emulated binary cannot start itself")
	}
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return self
}

// Emulated reports whether this binary is of another architecture than the
// machine. The kernel does not know how to start such a one, and trying it is
// more than some emulators stand.
var Emulated = sync.OnceValue(func() bool {
	// What a native program says of the machine, no emulator changes.
	out, err := exec.Command("uname", "-m").Output()
	if err != nil {
		return false
	}
	machine, known := map[string]string{"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}[strings.TrimSpace(string(out))]
	return known && machine != runtime.GOARCH
})
