package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
)

// TestInspect reads a directory of dumps of two ranks, of which one is behind, and writes a page
// and a trace. Wrong arguments must be an error.
func TestInspect(t *testing.T) {
	dir := t.TempDir()
	comms, err := tutti.Local(2, tutti.Config{FlightDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := comms[0].Batch().Barrier().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for running := false; !running; time.Sleep(time.Millisecond) {
		var dump bytes.Buffer
		if err := comms[0].Dump(&dump); err != nil || t.Context().Err() != nil {
			t.Fatal(err)
		}
		running = strings.Contains(dump.String(), `"state":"running"`)
	}
	comms[1].Abort(nil)
	for _, c := range comms {
		if err := c.Close(); err != nil && !errors.Is(err, tutti.ErrRevoked) {
			t.Error(err)
		}
	}
	page, trace := filepath.Join(t.TempDir(), "page.html"), filepath.Join(t.TempDir(), "trace.json")
	var out, errs bytes.Buffer
	if code := inspectTo([]string{"-html", page, "-trace", trace, dir}, &out, &errs); code != 0 {
		t.Fatalf("code %d: %s", code, &errs)
	}
	// A dump may be written before or after Close.
	if text := out.String(); !strings.HasPrefix(text, "Rank 1 is behind: it has called no collective operation; ") ||
		!strings.Contains(text, "; rank 0 is in Barrier#1") || !strings.Contains(text, "Abort was called on rank 1") {
		t.Errorf("it says: %s", text)
	}
	for file, want := range map[string]string{page: "<svg", trace: "traceEvents"} {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v: %s", file, err, text)
		}
	}
	for _, args := range [][]string{{}, {"-nonsense"}, {filepath.Join(dir, "nothing")}, {t.TempDir()}} {
		if code := inspectTo(args, &out, &errs); code == 0 {
			t.Errorf("%v: no error", args)
		}
	}
}
