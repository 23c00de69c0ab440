package tutti_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-go/tutti"
)

// TestFlightDir checks that each rank of a failed Comm writes a file, including a
// rank that makes no call, and that the error is returned after the file is
// written. Join waits for the file for at most a second, so a slow machine gets
// another attempt.
func TestFlightDir(t *testing.T) {
	var files []string
	for try := 0; try < 5 && len(files) != 3; try++ {
		dir := filepath.Join(t.TempDir(), "new", "folder")
		comms := local(t, 3, tutti.Config{FlightDir: dir})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := comms[1].Barrier(ctx)
		if !errors.Is(err, tutti.ErrAborted) {
			t.Fatal(err)
		}
		own, _ := filepath.Glob(filepath.Join(dir, "flight-world-rank1-pid*.json"))
		for _, c := range comms {
			if err := c.Close(); (c.Rank() == 1) != (err == nil) {
				t.Errorf("rank %d: %v", c.Rank(), err)
			}
		}
		if files, _ = filepath.Glob(filepath.Join(dir, "*")); len(own) != 1 {
			files = own
		}
	}
	if len(files) != 3 {
		t.Fatalf("there are only %v", files)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		var d struct {
			Error *struct{ Text string }
			Size  int
		}
		if err == nil {
			err = json.Unmarshal(text, &d)
		}
		if err != nil || d.Error == nil || d.Size != 3 || !strings.Contains(d.Error.Text, "cancelled") {
			t.Errorf("%s: %v\n%s", f, err, text)
		}
	}
}

// TestNoDump checks that a closed Comm writes no file, and that a folder that
// cannot be created causes no error.
func TestNoDump(t *testing.T) {
	dir := t.TempDir()
	for _, c := range local(t, 2, tutti.Config{FlightDir: dir}) {
		c.Close()
	}
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("there are %v", files)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := local(t, 1, tutti.Config{FlightDir: file})[0]
	c.Abort(nil)
	if err := c.Barrier(t.Context()); !errors.Is(err, tutti.ErrRevoked) {
		t.Error(err)
	}
}

// TestQueuedInDump checks that a dump contains queued operations and messages. The other rank makes no call,
// so nothing completes until Abort ends all of it.
func TestQueuedInDump(t *testing.T) {
	comms := local(t, 2, tutti.Config{})
	c := comms[0]
	x := make([]int32, 4)
	for range 3 {
		if _, err := c.Batch().Named("grads").AllReduce(tutti.Of(x), tutti.Sum).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Batch().Send(1, tutti.Of(x), 5).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := c.Dump(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if strings.Count(text, `"name":"grads"`) != 3 || !strings.Contains(text, `"state":"queued"`) ||
		!strings.Contains(text, `"verb":"Send"`) || !strings.Contains(text, `"tag":5`) {
		t.Error(text)
	}
	c.Abort(nil)
}

// TestStats checks the counters of two ranks after collectives, a Dup and messages, and the text of
// WriteMetrics. Each rank's goroutine writes its own element of stats.
func TestStats(t *testing.T) {
	var stats [2]tutti.Stats
	err := tutti.RunLocal(t.Context(), 2, tutti.Config{}, func(ctx context.Context, c *tutti.Comm) error {
		for range 100 {
			if err := c.AllReduce(ctx, tutti.Of(make([]float32, 2)), tutti.Sum); err != nil {
				return err
			}
		}
		if err := c.AllReduce(ctx, tutti.Of(make([]float64, 10_000)), tutti.Sum); err != nil {
			return err
		}
		sub, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		defer sub.Close()
		for range 70 {
			if err := c.SendRecv(ctx, 1-c.Rank(), tutti.Of(make([]int8, 3)), 1-c.Rank(), tutti.Of(make([]int8, 3)), 1); err != nil {
				return err
			}
		}
		if c.Rank() == 0 {
			if s := sub.Stats(); s.Comm != "world/102.0" || len(s.Ops) != 0 {
				t.Errorf("%+v", s)
			}
		}
		stats[c.Rank()] = c.Stats()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for r, s := range stats {
		if s.Comm != "world" || s.Rank != r || s.Size != 2 || s.Err != nil || len(s.Lost) > 0 {
			t.Errorf("%+v", s)
		}
		for _, o := range s.Ops {
			want := map[string][2]uint64{"AllReduce": {101, 100*8 + 80_000}, "Dup": {1, 0}, "Send": {70, 210}, "Recv": {70, 210}}[o.Op]
			if o.Count != want[0] || o.Bytes != want[1] || o.Failed != 0 || o.Op != "Dup" && o.Timed == 0 {
				t.Errorf("rank %d: %+v, want %v", r, o, want)
			}
		}
	}
	timed := func(op string) uint64 {
		return stats[0].Ops[slices.IndexFunc(stats[0].Ops, func(o tutti.OpStats) bool { return o.Op == op })].Timed
	}
	var b strings.Builder
	if err := tutti.WriteMetrics(&b, stats[:]...); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`# TYPE tutti_operations_total counter`,
		`tutti_operations_total{comm="world",rank="1",op="AllReduce"} 101`,
		`tutti_bytes_total{comm="world",rank="0",op="Send"} 210`,
		fmt.Sprintf(`tutti_operation_seconds_bucket{comm="world",rank="0",op="Recv",le="+Inf"} %d`, timed("Recv")),
		fmt.Sprintf(`tutti_operation_seconds_count{comm="world",rank="0",op="Recv"} %d`, timed("Recv")),
		`tutti_up{comm="world",rank="0"} 1`,
		`tutti_ranks_lost{comm="world",rank="0"} 0`,
	} {
		if strings.Count(b.String(), line+"\n") != 1 {
			t.Errorf("there is no line %s in\n%s", line, b.String())
		}
	}
}

// TestDumpBeforeRefusal checks that a call on a failed Comm is refused only after
// the dump is written, and that writing the dump does not deadlock with starting
// operations. A call waits for the file for at most a second, so a slow machine
// gets another attempt.
func TestDumpBeforeRefusal(t *testing.T) {
	for name, start := range map[string]func(c *tutti.Comm) error{
		"Batch": func(c *tutti.Comm) error {
			_, err := c.Batch().Barrier().Start(t.Context())
			return err
		},
		"Send": func(c *tutti.Comm) error { return c.Send(t.Context(), 0, tutti.Of([]int{1}), 0) },
		"Err":  (*tutti.Comm).Err,
	} {
		left := 0
		for try := 0; try < 5 && left == 0; try++ {
			dir := t.TempDir()
			c := local(t, 1, tutti.Config{FlightDir: dir})[0]
			c.Abort(nil)
			if err := start(c); !errors.Is(err, tutti.ErrRevoked) {
				t.Errorf("%s: %v", name, err)
			}
			files, _ := filepath.Glob(filepath.Join(dir, "flight-*.json"))
			left = len(files)
		}
		if left == 0 {
			t.Errorf("%s is refused before there is a dump", name)
		}
	}
}
