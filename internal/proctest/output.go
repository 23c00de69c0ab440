package proctest

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// Output collects the output of processes or loggers. It is safe for concurrent use. The zero value
// is empty.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Lines returns the lines so far, without surrounding white space.
func (o *Output) Lines() []string {
	text := strings.TrimSpace(o.String())
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// Await waits until the output contains text the given number of times.
func (o *Output) Await(tb testing.TB, text string, times int) {
	tb.Helper()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if strings.Count(o.String(), text) >= times {
			return
		}
	}
	tb.Fatalf("%q did not come %d times:\n%s", text, times, o)
}
