package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/internal/standin"
)

// TestMain lets the tests start this binary as a rank.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "rank" || os.Args[1] == "about") {
		main()
	}
	if proctest.Emulated() {
		fmt.Println("skipped: an emulated binary cannot start itself")
		return
	}
	os.Exit(m.Run())
}

// TestMeasure measures on the stand-in, whose figures mean nothing.
func TestMeasure(t *testing.T) {
	if _, err := standin.Use(); errors.Is(err, standin.ErrNoCompiler) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if _, err := compile(t.Context(), t.TempDir()); errors.Is(err, errNoCompiler) {
		t.Skip(err)
	}
	var text strings.Builder
	o := options{nccl: []string{os.Getenv("TUTTI_NCCL_LIBRARY")}, rounds: 2, bytes: 1 << 16, measure: true}
	if failed := run(t.Context(), o, &text); failed {
		t.Fatal(text.String())
	}
	t.Log(text.String())
	for _, want := range []string{"tutti stand-in 0", "NCCL 2.29.7", "| 2 | 1 KiB, to enqueue |", "| 4 | 0 MiB, whole |", "MPS: off"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the summary lacks %q", want)
		}
	}
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
	if err := besideTorch(t.Context(), torchOptions{}, &text); err == nil || !strings.Contains(err.Error(), "PyTorch cannot be used here") {
		t.Error(err)
	}
}
