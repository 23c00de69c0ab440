package launch

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestStartRankFails checks that startRank closes what it has opened when the second
// log file cannot be opened.
func TestStartRankFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "rank-0.err"), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := &Config{LogDir: dir, Ranks: 1, Stdout: new(bytes.Buffer), Stderr: new(bytes.Buffer)}
	w := &attempt{h: &host{cfg: cfg, size: 1}, cfg: cfg, outs: newOutputs(cfg)}
	before := openFiles(t)
	if err := w.startRank(&rank{}, nil); err == nil || !strings.Contains(err.Error(), "rank-0.err") {
		t.Fatal(err)
	}
	for file := range openFiles(t) {
		if !before[file] && (strings.HasPrefix(file, "pipe:") || strings.HasPrefix(file, dir)) {
			t.Errorf("%s is still open", file)
		}
	}
}

// TestIdleTimer checks that an idle timer does not fire, even after days.
func TestIdleTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := idleTimer()
		select {
		case <-timer.C:
			t.Error("it fires")
		case <-time.After(48 * time.Hour):
		}
		timer.Reset(time.Second)
		<-timer.C
	})
}

// openFiles returns the names of this process's open files.
func openFiles(t *testing.T) map[string]bool {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]bool)
	for _, f := range list {
		if name, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil {
			files[name] = true
		}
	}
	return files
}
