package proctest

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// Output collects what processes or loggers print. It may be read while it
// grows, from any goroutine. The zero value is empty.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
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

// Lines are the lines that have been printed, none if nothing was.
func (o *Output) Lines() []string {
	text := strings.TrimSpace(o.String())
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// Await waits until a text has been printed so many times.
func (o *Output) Await(tb testing.TB, text string, times int) {
	tb.Helper()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if strings.Count(o.String(), text) >= times {
			return
		}
	}
	tb.Fatalf("%q did not come %d times:\n%s", text, times, o)
}
