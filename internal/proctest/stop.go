package proctest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stopTime bounds how long a process may take to stop.
const stopTime = time.Minute

// Stop stops a process and returns when all its threads are stopped. A thread continues for a while
// after the signal was sent.
func Stop(tb testing.TB, pid int) {
	tb.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return // the system does not report thread states
	}
	for end := time.Now().Add(stopTime); !stopped(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("process %d does not stop", pid)
		}
	}
}

// stopped reports whether a process exists and none of its threads runs.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range threads {
		text, err := os.ReadFile(path)
		// The state follows the name in parentheses.
		if _, state, _ := strings.Cut(string(text), ") "); err != nil || !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return len(threads) > 0
}
