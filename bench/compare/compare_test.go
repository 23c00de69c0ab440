package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/proctest"
)

// TestMain lets the test binary be a rank, as the command itself is.
func TestMain(m *testing.M) {
	if os.Getenv(rankEnv) != "" {
		exit(rankMain())
		return
	}
	if os.Getenv(startEnv) != "" {
		exit(startRank())
		return
	}
	if proctest.Emulated() {
		fmt.Println("skipped: an emulated binary cannot start itself")
		return
	}
	os.Exit(m.Run())
}

// compared runs the command with arguments and returns its output.
func compared(t *testing.T, args ...string) string {
	t.Helper()
	o, err := parse(append([]string{"--rounds=1", "--budget=5ms", "--timeout=1m"}, args...), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	if err := compare(t.Context(), o, &out, &log); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	t.Log(log.String())
	return out.String()
}

// TestTuttiAlone checks the JSON lines of a comparison without peers: one line for each size, with
// all keys, and with times for tutti and the floor only.
func TestTuttiAlone(t *testing.T) {
	want := []string{
		"bytes", "ranks", "transport", "dtype", "tutti_us", "openmpi_us", "mpich_us", "gloo_us", "floor_us", "ratio_best",
	}
	for _, more := range [][]string{
		{"--transport=shm"},
		{"--transport=tcp"},
		{"--transport=shm", "--alloc"},
		{"--transport=shm", "--dtype=bfloat16"},
	} {
		t.Run(strings.Join(more, " "), func(t *testing.T) {
			text := compared(t, append(more, "--json", "--peers=", "--sizes=4,65536")...)
			lines := strings.Split(strings.TrimSpace(text), "\n")
			if len(lines) != 2 {
				t.Fatalf("%d lines instead of 2:\n%s", len(lines), text)
			}
			for i, size := range []float64{4, 65536} {
				var got map[string]any
				if err := json.Unmarshal([]byte(lines[i]), &got); err != nil {
					t.Fatal(err)
				}
				if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, slices.Sorted(slices.Values(want))) {
					t.Errorf("the keys are %q", keys)
				}
				if got["bytes"] != size || got["ranks"] != 2.0 || got["openmpi_us"] != nil || got["ratio_best"] != nil {
					t.Errorf("got %s", lines[i])
				}
				for _, key := range []string{"tutti_us", "floor_us"} {
					if us, _ := got[key].(float64); us <= 0 {
						t.Errorf("%s is %v", key, got[key])
					}
				}
			}
		})
	}
}

// TestOther compares this build with itself.
func TestOther(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := compared(t, "--json", "--peers=", "--sizes=4", "--other="+self)
	var got map[string]any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"tutti_us", "other_us", "ratio_other"} {
		if v, _ := got[key].(float64); v <= 0 {
			t.Errorf("%s is %v", key, got[key])
		}
	}
	if table := compared(t, "--peers=", "--sizes=4", "--other="+self); !strings.Contains(table, "tutti/other") {
		t.Error(table)
	}
}

func TestOperations(t *testing.T) {
	for _, op := range ops {
		t.Run(op, func(t *testing.T) {
			text := compared(t, "--op="+op, "--peers=", "--sizes=1000", "--ranks=3", "--stats", "--iters=20")
			ranks := 1
			if op == "allreduce" {
				ranks = 3
			}
			if got := strings.Count(text, "tutti"); got != ranks {
				t.Errorf("%d lines instead of %d:\n%s", got, ranks, text)
			}
		})
	}
}

// TestPeers runs each peer once, and once with a deadline that it cannot meet: run must then return
// an error and leave no process. It is skipped for peers that the machine does not have.
func TestPeers(t *testing.T) {
	if testing.Short() {
		t.Skip("compiling takes seconds")
	}
	for _, name := range peerNames {
		t.Run(name, func(t *testing.T) {
			o, err := parse([]string{"--ranks=2", "--sizes=4,1024", "--budget=5ms", "--peers=" + name}, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			dir := t.TempDir()
			// MPICH never yields. During other tests it may make no progress for
			// minutes, which is not a fault of tutti.
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			found := findPeers(ctx, o, dir, &log)
			if len(found) == 0 {
				t.Skip(log.String())
			}
			samples, err := found[0].run(ctx, o, "tcp")
			if ctx.Err() == nil && (err != nil || len(samples) != 4) {
				t.Errorf("%d samples instead of 4, %v", len(samples), err)
			}

			o.iters = 1e8 // longer than the deadline
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := found[0].run(ctx, o, "tcp"); err == nil {
				t.Error("no error when it is stopped")
			}
			for deadline := time.Now().Add(time.Minute); len(running(dir)) > 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("processes are left: %q", running(dir))
				}
			}
		})
	}
}

// running returns the command lines of processes that contain a text.
func running(text string) []string {
	var all []string
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && bytes.Contains(line, []byte(text)) {
			all = append(all, string(line))
		}
	}
	return all
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range []string{
		"--ranks=1", "--op=scan", "--transport=rdma", "--dtype=int32", "--peers=nccl", "--sizes=5", "--sizes=x",
		"--rounds=0", "--transport=tcp --alloc", "--dtype=bfloat16 --ranks=13", "stray",
	} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}

func TestMedianOverRounds(t *testing.T) {
	got := results{"tutti": {
		{bytes: 4, p50: 3},
		{bytes: 4, p50: 1},
		{bytes: 4, p50: 2},
		{bytes: 4, p50: 10},
		{bytes: 4, rank: 1, p50: 99},
		{bytes: 8, p50: 99},
	}}
	p50 := func(s sample) float64 { return s.p50 }
	if m := got.median("tutti", 4, 0, p50); m == nil || *m != 2.5 {
		t.Errorf("the median is %v", m)
	}
	if m := got.median("gloo", 4, 0, p50); m != nil {
		t.Errorf("the median of nothing is %v", *m)
	}
}

// TestStart times the launchers that the machine has, once, with two numbers of ranks. It is
// skipped where tutti cannot be built.
func TestStart(t *testing.T) {
	if testing.Short() {
		t.Skip("building takes seconds")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command to build tutti with")
	}
	var out, log bytes.Buffer
	if err := startMain(t.Context(), []string{"-ranks", "3,2", "-rounds", "1"}, &out, &log); err != nil {
		t.Fatal(err, log.String())
	}
	t.Log(out.String(), log.String())
	if n := strings.Count(out.String(), "| tutti run | "); n != 2 {
		t.Error(out.String())
	}
	if err := startMain(t.Context(), []string{"-ranks", "3,", "-tutti", "none"}, io.Discard, io.Discard); err == nil {
		t.Error("it starts an empty number of ranks")
	}
}

// TestHoldings checks that parseHoldings reads what ranks print, and the columns of the table.
func TestHoldings(t *testing.T) {
	a, b := holdings{1, 6, 35, 12, 9 << 10}, measureHoldings(0)
	text := fmt.Sprintf("[0] %v\nsomething else\n[1] %v\nfirst 12\n", b, a)
	if got := parseHoldings(text); !slices.Equal(got, []holdings{b, a}) {
		t.Errorf("%v, want %v and %v", got, b, a)
	}
	if got, want := holdingsText([]holdings{a, {0, 6, 40, 20, 8 << 10}}), "6 (6) | 40 (40) | 20 (20) | 9 (9)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := holdingsText(nil); got != "- | - | - | -" {
		t.Error(got)
	}
	if runtime.GOOS == "linux" && (b.mappings == 0 || b.descriptors < 3 || b.resident == 0) {
		t.Errorf("%v", b)
	}
}
