package enginetest

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// checkGoroutines fails the test if an engine has left a goroutine running. It
// gives goroutines that are about to end some time.
func checkGoroutines(tb testing.TB) {
	const patience = time.Minute
	var left string
	for begin := time.Now(); time.Since(begin) < patience; runtime.Gosched() {
		if left = engineGoroutines(); left == "" {
			return
		}
	}
	tb.Errorf("goroutines left behind:\n%s", left)
}

// engineGoroutines returns the stacks of all other goroutines that run code of an engine or of a body; "" if
// there are none.
func engineGoroutines() string {
	stacks := make([]byte, 64<<10)
	for {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			stacks = stacks[:n]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	var left []string
	for i, g := range strings.Split(string(stacks), "\n\n") {
		if i > 0 && strings.Contains(g, "internal/engine/") && !strings.Contains(g, "testing.tRunner") {
			left = append(left, g)
		}
	}
	return strings.Join(left, "\n\n")
}
