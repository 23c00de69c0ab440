package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBench compares tutti bench with C on the fake GPU, whose times mean nothing: it checks the
// rows of the table, with jobs one after the other and in turns.
func TestBench(t *testing.T) {
	needCompiler(t)
	tutti := filepath.Join(t.TempDir(), "tutti")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", tutti, "../../cmd/tutti")
	if text, err := build.CombinedOutput(); err != nil {
		t.Skipf("tutti cannot be built here: %v %s", err, text)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, turns := range []bool{false, true} {
		var text strings.Builder
		b := &benchRun{
			out: &text, tutti: tutti, self: self, ranks: []int{3}, sets: 2, turns: turns, rounds: 1, ahead: 4, ops: "allreduce,alltoall",
			flags: []string{"-b", "1K", "-e", "32K", "-f", "32", "--iters", "5", "--warmup", "1"},
			env:   []string{"TUTTI_BENCH_BYTES=32768"},
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		err = b.run(ctx)
		t.Log(text.String())
		if err != nil || b.points != 2*2 || strings.Contains(text.String(), "FAILED") {
			t.Errorf("%v, %d points", err, b.points)
		}
		for _, want := range []string{"| allreduce | 1024 | 3 |", "| alltoall | 32760 | 3 |", ", 2 x | ", "of 4 points within 3%", "| alltoall | 32768 | "} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("the table lacks %q", want)
			}
		}
	}
}

func TestSlowest(t *testing.T) {
	ranks := [][]float64{{1, 5, 1}, {4, 2, 2}}
	if got := slowest("allreduce", ranks); got != 2 {
		t.Error(got)
	}
	if got := slowest("gather", ranks); got != 4 {
		t.Error(got)
	}
}

func TestQuantiles(t *testing.T) {
	for _, c := range []struct {
		s       series
		q, want float64
	}{
		{nil, 0.5, 0},
		{series{3}, 0.5, 3},
		{series{3}, 1, 3},
		{series{4, 1}, 0.5, 2.5},
		{series{4, 1, 2}, 0.5, 2},
		{series{4, 1, 2, 3}, 0.5, 2.5},
		{series{4, 1, 2, 3}, 0, 1},
		{series{4, 1, 2, 3}, 1, 4},
	} {
		if got := c.s.at(c.q); got != c.want {
			t.Errorf("%v at %v: %v, not %v", c.s, c.q, got, c.want)
		}
	}
}
