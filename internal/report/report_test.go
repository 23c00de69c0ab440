package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/flight"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/store"
)

// A comm is a Comm whose state a test sets.
type comm struct {
	title  string
	busy   bool
	failed chan struct{}
}

func newTestComm(title string) *comm { return &comm{title: title, failed: make(chan struct{})} }

func (c *comm) Title() string           { return c.title }
func (c *comm) Failed() <-chan struct{} { return c.failed }
func (c *comm) Busy() bool              { return c.busy }
func (c *comm) Dump() *flight.Dump      { return &flight.Dump{Comm: c.title, Rank: 2, Size: 3} }

func (c *comm) Poisoned() bool {
	select {
	case <-c.failed:
		return true
	default:
		return false
	}
}

// reporter returns a Reporter with a store in memory.
func reporter(dir string) (*Reporter, *store.Memory) {
	s := store.NewMemory(store.Limits{})
	return New(Config{
		Name: "1.0", FlightDir: dir, Logger: slog.New(slog.DiscardHandler),
		Open: func(context.Context) (store.Store, func() error, error) { return s, func() error { return nil }, nil },
	}), s
}

// titles returns the Comms in the report of the store.
func titles(t *testing.T, s store.Store) (list []string) {
	t.Helper()
	text, err := s.Get(t.Context(), jobstore.Report("1.0"))
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
		var dump flight.Dump
		if err := d.Decode(&dump); err != nil {
			t.Fatal(err)
		}
		list = append(list, dump.Comm)
	}
	return list
}

// TestRequest answers the launcher's request with a report and the flight files.
func TestRequest(t *testing.T) {
	dir := t.TempDir()
	r, s := reporter(dir)
	idle, busy, bad := newTestComm("world"), newTestComm("world/3.0"), newTestComm("world/4.0")
	busy.busy = true
	var watches []*Watch
	for _, c := range []*comm{idle, busy, bad} {
		watches = append(watches, r.Watch(c))
	}
	close(bad.failed)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := errors.Join(s.Set(ctx, jobstore.ReportRequest, nil), s.Wait(ctx, jobstore.ReportComplete("1.0"))); err != nil {
		t.Fatal(err)
	}
	if got := titles(t, s); !slices.Equal(got, []string{"world/4.0", "world/3.0", "world"}) {
		t.Errorf("the report has the Comms %q", got)
	}
	for _, w := range watches {
		if w.Reporter() != r {
			t.Error("another Reporter")
		}
		w.Close()
	}
	for _, title := range []string{"world", "world_3-0", "world_4-0"} {
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("flight-%s-rank2-pid%d.json", title, os.Getpid()))); err != nil {
			t.Error(err)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, ".flight-*")); len(files) > 0 {
		t.Errorf("temporary files are left: %s", strings.Join(files, " "))
	}
}

// TestPoisoned reports a poisoned Comm before Await returns, and that the process continues
// when it has another Comm.
func TestPoisoned(t *testing.T) {
	r, s := reporter("")
	bad := newTestComm("world")
	w := r.Watch(bad)
	w.Await() // it returns at once
	close(bad.failed)
	w.Await()
	if got := titles(t, s); !slices.Equal(got, []string{"world"}) || !r.failed.Load() {
		t.Errorf("the report has the Comms %q", got)
	}
	w.Close()
	w.Close()
	next := r.Watch(newTestComm("world/1"))
	defer next.Close()
	for end := time.Now().Add(time.Minute); !slices.Equal(titles(t, s), []string{"world/1"}); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the recovery is not reported")
		}
	}
}

// TestNothing checks a Reporter with neither a launcher nor a directory.
func TestNothing(t *testing.T) {
	r := New(Config{})
	w := r.Watch(newTestComm("world"))
	w.Await()
	w.Close()
	if r != nil || w != nil || w.Reporter() != nil {
		t.Error("there is a Reporter")
	}
}
