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

// Stop stops a process, and returns when it is, with all its threads: until then
// it goes on with what it does, however long ago the signal was sent.
func Stop(tb testing.TB, pid int) {
	tb.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return // the system does not tell
	}
	for end := time.Now().Add(stopTime); ; time.Sleep(time.Millisecond) {
		stopped, err := isStopped(pid)
		if stopped {
			return
		}
		if err != nil || time.Now().After(end) {
			tb.Fatalf("process %d does not stop: %v", pid, err)
		}
	}
}

// isStopped reports whether all threads of a process are.
func isStopped(pid int) (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err == nil && len(threads) == 0 {
		err = os.ErrNotExist
	}
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if err != nil {
			return false, nil // the thread has ended: look again
		}
		// The state follows the name, which is in brackets.
		if _, state, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(state, "T") {
			return false, nil
		}
	}
	return err == nil, err
}
