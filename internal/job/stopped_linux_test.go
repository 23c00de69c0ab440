package job

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// leaveRank runs a Barrier, waits for a line, and leaves. The last rank runs a second Barrier and
// prints the error.
func leaveRank(ctx context.Context, e engine.Engine) error {
	if err := e.Run(ctx, 1, []engine.Call{{Verb: engine.Barrier}}); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := fmt.Scanln(new(string)); err != nil {
		return err
	}
	if e.Rank() == e.Size()-1 {
		fmt.Println("ended:", e.Run(ctx, 2, []engine.Call{{Verb: engine.Barrier}}))
	}
	return nil
}

// TestLeaveStopped lets all ranks but a stopped one leave. They must not wait for it. When it
// continues, it gets an error.
func TestLeaveStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("takes the time after which a rank counts as stopped")
	}
	const n = 3
	w := start(t, n, "parting")
	for _, out := range w.out {
		out.Await(t, "ready", 1)
	}
	last := &world{cmds: w.cmds[n-1:], in: w.in[n-1:]}
	last.stop(t)
	begin := time.Now()
	(&world{in: w.in[:n-1]}).say(t, "leave")
	(&world{cmds: w.cmds[:n-1], out: w.out}).wait(t)
	if took := time.Since(begin); took >= 30*time.Second {
		t.Errorf("the others took %v to leave a stopped rank", took)
	}
	last.signal(t, syscall.SIGCONT)
	last.say(t, "go")
	if err := w.cmds[n-1].Wait(); err != nil {
		t.Error(err)
	}
	if text := w.out[n-1].String(); !strings.Contains(text, "ended: ") || !strings.Contains(text, "a rank was lost") {
		t.Errorf("the rank that was stopped: %s", text)
	}
}
