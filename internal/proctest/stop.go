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

// stopTime is how long a process may take to stop.
const stopTime = time.Minute

// Stop stops a process, and returns when it is: until then it goes on with what
// it does, however long ago the signal was sent.
func Stop(tb testing.TB, pid int) {
	tb.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return // the system does not tell
	}
	for end := time.Now().Add(stopTime); !stopped(pid); time.Sleep(time.Millisecond) {
		if err := syscall.Kill(pid, 0); err != nil || time.Now().After(end) {
			tb.Fatalf("process %d does not stop: %v", pid, err)
		}
	}
}

// stopped reports whether all threads of a process are: one that is in the middle
// of a system call may still finish it when others have stopped.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// The state follows the name, which is in brackets.
		if _, state, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return len(threads) > 0
}
