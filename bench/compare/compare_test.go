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
		"op", "bytes", "ranks", "transport", "dtype", "tutti_us", "openmpi_us", "mpich_us", "gloo_us", "floor_us", "ratio_best",
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
				if got["op"] != "allreduce" || got["bytes"] != size || got["ranks"] != 2.0 || got["openmpi_us"] != nil || got["ratio_best"] != nil {
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

// TestMessages checks the JSON lines of messages, below and above smallMessage, in plain memory and in memory
// of Alloc, compared with this build itself. Each rank checks what it receives.
func TestMessages(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range messageOps {
		for _, alloc := range []string{"--alloc=false", "--alloc"} {
			t.Run(op+" "+alloc, func(t *testing.T) {
				text := compared(t, "--op="+op, alloc, "--json", "--peers=", "--sizes=4,20000", "--iters=5", "--rounds=2", "--other="+self)
				lines := strings.Split(strings.TrimSpace(text), "\n")
				if len(lines) != 2 {
					t.Fatalf("%d lines instead of 2:\n%s", len(lines), text)
				}
				for _, line := range lines {
					var got row
					if err := json.Unmarshal([]byte(line), &got); err != nil {
						t.Fatal(err)
					}
					if got.Op != op || got.Tutti == nil || got.RatioOther == nil || got.Floor != nil {
						t.Errorf("got %s", line)
					}
				}
			})
		}
	}
}

// TestCombinePairs checks how the results of pairs become one, from ranks of which the odd ones do not count.
func TestCombinePairs(t *testing.T) {
	ranks := []sample{
		{iters: 7, p50: 2, p99: 4, p999: 6, min: 1, perSecond: 10},
		{iters: 7, p50: 99, p99: 99, p999: 99, min: 99, perSecond: 99},
		{iters: 7, p50: 6, p99: 8, p999: 10, min: 3, perSecond: 30},
		{iters: 7, p50: 99, p99: 99, p999: 99, min: 99, perSecond: 99},
	}
	for op, want := range map[string]sample{
		"pingpong": {iters: 7, p50: 4, p99: 6, p999: 8, min: 2, perSecond: 40},
		"rate":     {iters: 7, p50: 2, p99: 3, p999: 4, min: 1, perSecond: 40},
	} {
		if got := combinePairs(op, ranks); got != want {
			t.Errorf("%s: %+v, want %+v", op, got, want)
		}
	}
	if got, want := ranks[2].divided(2), (sample{iters: 7, p50: 3, p99: 4, p999: 5, min: 1.5, perSecond: 60}); got != want {
		t.Errorf("a half of an iteration: %+v, want %+v", got, want)
	}
}

func TestOperations(t *testing.T) {
	for _, op := range ops {
		t.Run(op, func(t *testing.T) {
			ranks, lines := "3", 1
			if isMessage(op) {
				ranks = "4"
			}
			if op == "allreduce" {
				lines = 3
			}
			text := compared(t, "--op="+op, "--peers=", "--sizes=1000", "--ranks="+ranks, "--stats", "--iters=20")
			if got := strings.Count(text, "tutti"); got != lines {
				t.Errorf("%d lines instead of %d:\n%s", got, lines, text)
			}
		})
	}
}

// TestPeers runs each peer with AllReduce and with the message operations that it has, and once with a deadline
// that it cannot meet: run must then return an error and leave no process. It is skipped for peers that the
// machine does not have.
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
			for op, lines := range map[string]int{"allreduce": 4, "sendrecv": 2, "pingpong": 2, "rate": 2} {
				o.op = op
				if found[0].lacks(o, "tcp") != "" {
					continue
				}
				samples, err := found[0].run(ctx, o, "tcp")
				if ctx.Err() == nil && (err != nil || len(samples) != lines) {
					t.Errorf("%s: %d samples instead of %d, %v", op, len(samples), lines, err)
				}
			}

			o.op, o.iters = "allreduce", 1e8 // longer than the deadline
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

// TestPlainMPINames builds with tools that are named mpicc and mpirun. They are scripts that act as Open MPI's.
func TestPlainMPINames(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	script := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	build := func(flavour string) (mpi, error) {
		return buildMPI(t.Context(), flavour, filepath.Join(t.TempDir(), flavour), "")
	}
	if _, err := build("openmpi"); err == nil {
		t.Error("no error without tools")
	}
	script("mpirun", "echo 'Report bugs to http://www.open-mpi.org/community/help/'")
	if _, err := build("openmpi"); err == nil {
		t.Error("no error without a compiler")
	}
	script("mpicc", "exit 0")
	if m, err := build("openmpi"); err != nil || m.launcher != "mpirun" {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := build("mpich"); err == nil {
		t.Error("Open MPI's tools are taken for MPICH's")
	}
	script("mpicc.openmpi", "exit 0")
	script("mpirun.openmpi", "exit 0")
	if m, err := build("openmpi"); err != nil || m.launcher != "mpirun.openmpi" {
		t.Errorf("%+v, %v", m, err)
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
		"--ranks=1", "--op=gather", "--transport=rdma", "--dtype=int32", "--peers=nccl", "--sizes=5", "--sizes=x",
		"--rounds=0", "--transport=tcp --alloc", "--dtype=bfloat16 --ranks=13", "stray",
		"--op=pingpong --ranks=3", "--op=rate --sizes=134217728", "--op=rate --sizes=, --rounds=0",
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
