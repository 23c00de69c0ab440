package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/internal/proctest"
)

// TestMain lets the tests start this binary as a rank.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && commands[os.Args[1]] != nil {
		main()
	}
	if proctest.Emulated() {
		fmt.Println("skipped: an emulated binary cannot start itself")
		return
	}
	os.Exit(m.Run())
}

// needCompiler selects the fake GPU. It skips the test if neither the fake libraries nor the C
// driver can be compiled. The fake libraries may exist from an earlier run.
func needCompiler(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("building and measuring takes long")
	}
	_, err := fakegpu.Use()
	if err == nil {
		_, err = compile(t.Context(), t.TempDir())
	}
	switch {
	case errors.Is(err, fakegpu.ErrNoCompiler), errors.Is(err, errNoCompiler):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}

// TestMeasure measures on the fake GPU, whose figures mean nothing.
func TestMeasure(t *testing.T) {
	needCompiler(t)
	var text strings.Builder
	o := options{nccl: []string{os.Getenv("TUTTI_NCCL_LIBRARY")}, rounds: 2, bytes: 1 << 16, measure: true}
	if failed := run(t.Context(), o, &text); failed {
		t.Fatal(text.String())
	}
	t.Log(text.String())
	for _, want := range []string{"tutti fake GPU 0", "NCCL 2.29.7", "| 2 | 1 KiB, to enqueue |", "| 4 | 0 MiB, whole |", "MPS: off"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the summary lacks %q", want)
		}
	}
}

// TestShort runs a little of every section of "gputest short" on the fake GPU, and checks that each
// prints its result. Its times mean nothing, and are not checked, so the run's verdict does not
// count.
func TestShort(t *testing.T) {
	needCompiler(t)
	var text strings.Builder
	s := &shortRun{
		out: &text, runs: 30, aborts: 3, kills: 4, cycles: 12, dups: 2, rounds: 1, bytes: 1 << 20,
		env: []string{"TUTTI_BENCH_BYTES=1048576"}, streamRanks: []int{1, 2}, connections: []int{8},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	_ = s.run(ctx, false)
	t.Log(text.String())
	for _, want := range []string{
		"right in 30 of 30 runs, wanted 30 | ok", "512 of 512 in 8 ways", "1280 of 1280 in 10 ways", "a new Comm works | ok", "wrong in 3 of 3 runs | ok", "a Batch of 100 x 1 KiB compared with",
		"staged AllReduce of 1 MiB", "the naive way", "through a Comm in a stream's order, to enqueue", "by package nccl, to enqueue",
		"3 of 3 told in time, closed, and a new Comm made; wanted 3;", "Comms of 2 ranks made, used and closed",
		"4 of 4 rounds: named within", "the survivors alone make and use one more | ok", "Go, 12: device memory",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q", want)
		}
	}
}

// TestShortInTime checks that a run ends with its budget, and prints the results so far.
func TestShortInTime(t *testing.T) {
	if _, err := fakegpu.Use(); errors.Is(err, fakegpu.ErrNoCompiler) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	// A busy machine may need longer for the first result.
	for _, limit := range []time.Duration{5 * time.Second, 20 * time.Second, time.Minute} {
		var text strings.Builder
		s := &shortRun{out: &text, only: "order", runs: 1 << 30, env: []string{"TUTTI_BENCH_BYTES=1048576"}}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := s.run(ctx, false)
		cancel()
		if err != nil && strings.Contains(text.String(), "stream order, 2 ranks, Batch.On | right in") {
			return
		}
		t.Logf("%v: %v\n%s", limit, err, text.String())
	}
	t.Error("it shows nothing, however long it has")
}

// TestShrink kills two of four ranks on the fake GPU, and adds two others.
func TestShrink(t *testing.T) {
	if _, err := fakegpu.Use(); errors.Is(err, fakegpu.ErrNoCompiler) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	if err := (&elasticRun{out: &text, rounds: 1}).run(ctx); err != nil || !strings.Contains(text.String(), "6 processes, 2 killed") {
		t.Errorf("%v\n%s", err, text.String())
	}
	t.Log(text.String())
}

func TestCount(t *testing.T) {
	r := count("--- PASS: A (0s)\n    --- PASS: A/b (0s)\n--- SKIP: B\n--- FAIL: C\nFAIL\n")
	if r.passed != 2 || r.skipped != 1 || r.failed != 1 || !strings.HasSuffix(r.tail, "FAIL") {
		t.Errorf("%+v", r)
	}
}

func TestNoLibrary(t *testing.T) {
	t.Setenv("TUTTI_CUDA_LIBRARY", "/no/such/library")
	var text strings.Builder
	if failed := run(t.Context(), options{nccl: []string{"/no/such/nccl"}}, &text); !failed || !strings.Contains(text.String(), "/no/such/library") {
		t.Error(text.String())
	}
}

func TestGroupRows(t *testing.T) {
	rows := groupRows("    --- PASS: TestPyTorch/Python_leads (9.10s)\n    --- FAIL: TestPyTorch/as_vLLM_does_it (1.00s)\n--- PASS: TestOther/x (1.0s)\n")
	if got := strings.Join(rows, ""); got != "| Python leads | passed | 9.10 |\n| as vLLM does it | failed | 1.00 |\n" {
		t.Error(got)
	}
}

func TestNoPyTorch(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var text strings.Builder
	if err := withPyTorch(t.Context(), torchOptions{}, &text); err == nil || !strings.Contains(err.Error(), "PyTorch cannot be used here") {
		t.Error(err)
	}
}
