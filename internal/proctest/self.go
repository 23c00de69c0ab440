// Package proctest holds helpers for tests that start processes.
package proctest

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Self returns the path of the running test binary. It skips the test under an emulator, where the
// binary cannot be started again.
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

// Emulated reports whether this binary is built for another architecture than the machine's. The
// kernel cannot start such a binary, and some emulators crash on the attempt.
var Emulated = sync.OnceValue(func() bool {
	// A native program reports the real architecture even under an emulator.
	out, err := exec.Command("uname", "-m").Output()
	if err != nil {
		return false
	}
	machine, known := map[string]string{"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}[strings.TrimSpace(string(out))]
	return known && machine != runtime.GOARCH
})
