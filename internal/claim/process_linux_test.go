package claim

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/tutti-go/tutti/store"
)

// TestSameHost has holders on this host: this process itself, a running process, and a killed
// process for which no process has called wait.
func TestSameHost(t *testing.T) {
	stores(t, func(t *testing.T, ctx context.Context, s store.Store) {
		for range 2 { // again, by the same process
			if _, err := Take(ctx, s, "key", Options{}); err != nil {
				t.Fatal(err)
			}
		}
		child := exec.Command("sleep", "1000")
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = child.Process.Kill()
			_ = child.Wait()
		}()
		start, _, ok := stat(child.Process.Pid)
		if !ok {
			t.Fatal("no such process")
		}
		other := self()
		other.ID, other.Start = child.Process.Pid, start
		mine, err := Take(ctx, s, "key 2", Options{self: &other})
		if err != nil {
			t.Fatal(err)
		}
		var taken *TakenError
		if _, err := Take(ctx, s, "key 2", Options{}); !errors.As(err, &taken) {
			t.Errorf("%v, want a living holder", err)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for fate := living; fate != ended; fate = other.look() {
			if ctx.Err() != nil {
				t.Fatal("a process that was killed lives")
			}
		}
		if _, err := Take(ctx, s, "key 2", Options{}); err != nil {
			t.Error(err)
		}
		var lost *LostError
		mine.beat = time.Millisecond
		if err := mine.Keep(ctx); !errors.As(err, &lost) {
			t.Error(err)
		}
		again := process{Host: self().Host, ID: os.Getpid(), Start: "1"} // another process had this one's id
		if fate := again.compare(self()); fate != ended {
			t.Errorf("a process that began at another time: %v", fate)
		}
	})
}
