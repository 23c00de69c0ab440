package proctest

import (
	"fmt"
	"os"
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
	for end := time.Now().Add(stopTime); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || time.Now().After(end) {
			tb.Fatalf("process %d does not stop: %v", pid, err)
		}
		// The state follows the name, which is in brackets.
		if _, state, _ := strings.Cut(string(text), ") "); strings.HasPrefix(state, "T") {
			return
		}
	}
}
