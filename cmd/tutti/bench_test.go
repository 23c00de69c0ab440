package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/affinity"
	"github.com/tutti-go/tutti/internal/bench"
	"github.com/tutti-go/tutti/internal/fakegpu"
	"github.com/tutti-go/tutti/internal/proctest"
)

// damageFromEnv parses TUTTI_TEST_DAMAGE: "rank, byte, part of a point's name". It
// changes that byte of that rank's result.
func damageFromEnv() func(rank int, what string, dst []byte) {
	var rank, at int
	var part string
	if n, _ := fmt.Sscanf(os.Getenv("TUTTI_TEST_DAMAGE"), "%d %d %s", &rank, &at, &part); n < 3 {
		return nil
	}
	return func(r int, what string, dst []byte) {
		if r == rank && strings.HasPrefix(what, part) && at < len(dst) {
			dst[at] ^= 0x40
		}
	}
}

// A result is the outcome of a command.
type result struct {
	out, err string
	code     int
}

// commandOf returns this binary as the command tutti, with arguments.
func commandOf(t testing.TB, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), proctest.Self(t), args...)
	cmd.Env = append(append(os.Environ(), "TUTTI_TEST_ACT=tutti", "GORACE=atexit_sleep_ms=0"), env...)
	return cmd
}

// tuttiWith runs this binary as the command tutti.
func tuttiWith(t testing.TB, env []string, args ...string) result {
	t.Helper()
	cmd := commandOf(t, env, args...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return result{out.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// results decodes the output of --json. It fails the test if a line does not have exactly the
// documented keys.
func results(t *testing.T, text string) (list []bench.Result) {
	t.Helper()
	want := strings.Fields("algbw_gbs busbw_gbs bytes dtype engine iters min_us op p50_us p99_us ranks reduce wrong")
	for line := range strings.Lines(text) {
		var keys map[string]any
		if err := json.Unmarshal([]byte(line), &keys); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		var names []string
		for k := range keys {
			names = append(names, k)
		}
		slices.Sort(names)
		if !slices.Equal(names, want) {
			t.Fatalf("the keys are %v", names)
		}
		var r bench.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// fewIters makes measurements fast.
var fewIters = []string{"--iters", "2", "--warmup", "1"}

// TestBenchTable checks the width of the table, its verdict, and that it has no control characters.
func TestBenchTable(t *testing.T) {
	got := tuttiWith(t, nil, "bench", "-n", "2", "--op", "allreduce,gather,barrier", "-b", "8", "-e", "64K", "-f", "64", "--budget", "3ms")
	if got.code != 0 || got.err != "" {
		t.Fatalf("code %d, %s", got.code, got.err)
	}
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if !strings.HasPrefix(lines[len(lines)-1], "ok: 7 points, every result right") {
		t.Errorf("the verdict is %q", lines[len(lines)-1])
	}
	if runtime.GOOS == "linux" && strings.Contains(lines[1], "(bound)") != (runtime.NumCPU() > 1) {
		t.Errorf("on %d cores: %s", runtime.NumCPU(), lines[1])
	}
	for i, l := range lines {
		if len(l) > 80 && i > 1 { // the machine's name may be long
			t.Errorf("%d columns: %s", len(l), l)
		}
		if i := strings.IndexFunc(l, func(r rune) bool { return r < ' ' }); i >= 0 {
			t.Errorf("a control character: %q", l)
		}
	}
}

// TestBenchDefaultRanks starts one rank per GOMAXPROCS, which is the CPU limit of a
// container and not the number of the host's CPUs.
func TestBenchDefaultRanks(t *testing.T) {
	skipUnlessLinux(t)
	for procs, want := range map[string]string{"1": "engine shm, 2 ranks,", "3": "engine shm, 3 ranks,"} {
		got := tuttiWith(t, []string{"GOMAXPROCS=" + procs}, append([]string{"bench", "--op", "barrier"}, fewIters...)...)
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%s: code %d\n%s%s", procs, got.code, got.out, got.err)
		}
	}
}

// TestBenchEngines checks every operation, type and reduction on every engine that
// needs no GPU.
func TestBenchEngines(t *testing.T) {
	for _, c := range []struct {
		engine string
		args   []string
		rows   int
	}{
		{"local", []string{"-n", "3"}, 465},
		{"shm", []string{"-n", "2"}, 465},
		{"shm", []string{"-n", "3", "--alloc", "--in-place", "--batch", "2"}, 453},
		{"tcp", []string{"-n", "2", "--batch", "2"}, 465},
		{"hier", []string{"-n", "3", "--in-place"}, 453},
	} {
		t.Run(c.engine+strings.Join(c.args, ""), func(t *testing.T) {
			if c.engine != "local" && c.engine != "tcp" {
				skipUnlessLinux(t)
			}
			args := append(append([]string{"bench", "--engine", c.engine, "--json", "--dtype", "all", "--reduce", "all", "-b", "4K", "-e", "4K"},
				fewIters...), c.args...)
			got := tuttiWith(t, nil, args...)
			if got.code != 0 {
				t.Fatalf("code %d, %s", got.code, got.err)
			}
			list := results(t, got.out)
			if len(list) != c.rows {
				t.Errorf("%d rows, not %d", len(list), c.rows)
			}
			for _, r := range list {
				if r.Wrong != 0 || r.Engine != c.engine || r.Iters != 2 || r.P50 <= 0 || r.Min > r.P50 || r.P50 > r.P99 {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// TestBenchAhead starts several operations before it waits for the first, and checks the number of
// iterations. Barriers and messages are never started ahead.
func TestBenchAhead(t *testing.T) {
	args := []string{"bench", "--engine", "local", "-n", "2", "--json", "--op", "allreduce,broadcast,sendrecv,barrier", "-b", "1K", "-e", "1K"}
	for text, want := range map[string]struct{ ahead, iters, waited int }{
		"--ahead 4 --iters 10": {4, 12, 10}, "--ahead 9 --iters 5": {5, 5, 5}, "--iters 3": {1, 3, 3},
		"--ahead 2 --budget 1ms": {2, 0, 0}, "--ahead 50 --warmup 0 --budget 1ms": {4, 0, 0},
	} {
		got := tuttiWith(t, nil, append(args, strings.Fields(text)...)...)
		list := results(t, got.out)
		if got.code != 0 || len(list) != 4 {
			t.Fatalf("%s: code %d, %s", text, got.code, got.err)
		}
		for _, r := range list {
			ahead, iters := want.ahead, want.iters
			if r.Op == "barrier" || r.Op == "sendrecv" {
				ahead, iters = 1, want.waited
			}
			if r.Wrong != 0 || iters != 0 && r.Iters != iters || r.Iters%ahead != 0 {
				t.Errorf("%s: %+v", text, r)
			}
		}
	}
	if got := tuttiWith(t, nil, "bench", "--ahead", "-1"); got.code != bench.ExitUsage || !strings.Contains(got.err, "--ahead is -1") {
		t.Errorf("code %d, %s", got.code, got.err)
	}
}

// TestBenchNamesWrongElements damages a result on one rank: bench must name the element, go on, and
// return ExitWrong.
func TestBenchNamesWrongElements(t *testing.T) {
	for _, engine := range []string{"local", "tcp"} {
		env := []string{"TUTTI_TEST_DAMAGE=1 12 allgather"}
		args := append([]string{"bench", "--engine", engine, "-n", "2", "--op", "allgather,allreduce", "-b", "64", "-e", "64", "--dtype", "int32"}, fewIters...)
		got := tuttiWith(t, env, args...)
		if got.code != bench.ExitWrong {
			t.Errorf("%s: code %d:\n%s%s", engine, got.code, got.out, got.err)
		}
		for _, want := range []string{"wrong result: allgather 64 int32: rank 1, index 3: got ", ", want "} {
			if !strings.Contains(got.err, want) {
				t.Errorf("%s: not %q, but %s", engine, want, got.err)
			}
		}
		if !strings.Contains(got.out, "WRONG: 2 elements") { // one in each check
			t.Errorf("%s: the verdict is missing:\n%s", engine, got.out)
		}
		got = tuttiWith(t, env, append(args, "--json")...)
		list := results(t, got.out)
		if got.code != bench.ExitWrong || len(list) != 2 || list[0].Wrong != 2 || list[1].Wrong != 0 {
			t.Errorf("%s: code %d, %+v", engine, got.code, list)
		}
	}
}

// TestBenchUnderRun has tutti run start the ranks. Only rank 0 prints and writes files, a wrong
// result is the job's exit code, and -n is refused.
func TestBenchUnderRun(t *testing.T) {
	skipUnlessLinux(t)
	self := proctest.Self(t)
	rest := append([]string{"--op", "allreduce", "-b", "1K", "-e", "1K"}, fewIters...)
	got := tuttiWith(t, nil, append([]string{"run", "-n", "3", "--", self, "bench"}, rest...)...)
	if got.code != 0 || !strings.Contains(got.out, "[0] engine shm, 3 ranks") || !strings.Contains(got.out, "[0] ok: 1 point") || strings.Contains(got.out, "[1]") {
		t.Errorf("code %d:\n%s%s", got.code, got.out, got.err)
	}
	got = tuttiWith(t, []string{"TUTTI_TEST_DAMAGE=2 0 allreduce"}, append([]string{"run", "-n", "3", "--", self, "bench"}, rest...)...)
	if got.code != bench.ExitWrong || !strings.Contains(got.err, "rank 2, index 0") {
		t.Errorf("code %d:\n%s%s", got.code, got.out, got.err)
	}
	// Only rank 0 writes files: the other ranks may be on other hosts.
	dir := t.TempDir()
	for _, rank := range []string{"0", "1"} {
		if err := os.Mkdir(filepath.Join(dir, rank), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "0", "old.json"), []byte(`{"op":"barrier","engine":"shm","ranks":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	got = tuttiWith(t, nil, "run", "-n", "2", "--", "sh", "-c", `cd "$0/$TUTTI_RANK" && exec "$1" bench --op barrier --iters 2 --against old.json`, dir, self)
	if got.code != 0 || !strings.Contains(got.out, "[0] against old.json: ") {
		t.Errorf("code %d:\n%s%s", got.code, got.out, got.err)
	}
	got = tuttiWith(t, nil, "run", "-n", "2", "--", self, "bench", "-n", "4")
	if got.code != bench.ExitUsage || !strings.Contains(got.err, "-n is for where there is no launcher") {
		t.Errorf("code %d:\n%s", got.code, got.err)
	}
}

// TestBenchWrongFlags checks that each wrong flag is one line on standard error, with the exit code
// for usage.
func TestBenchWrongFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--op gossip":            `no operation "gossip"`,
		"--dtype int7":           `no type "int7"`,
		"--reduce nand":          `no reduction "nand"`,
		"--reduce xor":           "xor for integers",
		"--engine warp":          `no engine "warp"`,
		"-b 4X":                  `"4X" is not a number of bytes`,
		"-b 1M -e 1K":            "sizes from 1M to 1K",
		"-n 0":                   "-n is 0; it must be 1 or more",
		"--batch 0":              "--batch is 0; it must be 1 or more",
		"--html /nowhere/x":      "--html: open /nowhere/x: no such file",
		"--op scan --reduce avg": "scan and exscan have no avg",
		"extra":                  `"extra" is not a flag`,
		"--frobnicate":           "frobnicate",
		"--against /nowhere":     "/nowhere",
		"--engine hier -n 2":     "needs 3",
		"--engine tcp -alloc":    "--alloc is memory that ranks of a host share",
	} {
		got := tuttiWith(t, nil, append([]string{"bench"}, strings.Fields(args)...)...)
		if got.code != bench.ExitUsage || !strings.Contains(got.err, want) || strings.Count(got.err, "\n") != 1 || got.out != "" {
			t.Errorf("%s: code %d, %q %q", args, got.code, got.err, got.out)
		}
	}
}

// TestBenchInterrupted stops bench by SIGINT: it must say so, and return 130. No process remains,
// whether bench or tutti run started the ranks.
func TestBenchInterrupted(t *testing.T) {
	skipUnlessLinux(t)
	for name, c := range map[string]struct {
		before, after []string
		says          string
	}{
		"processes": {nil, []string{"-n", "2"}, "tutti bench: stopped by SIGINT during allreduce "},
		"local":     {nil, []string{"-n", "2", "--engine", "local"}, "tutti bench: stopped by SIGINT during allreduce "},
		"run":       {[]string{"run", "-n", "2", "--grace", "1h", "--", proctest.Self(t)}, nil, "ended by tutti: killed by SIGINT\n"},
	} {
		t.Run(name, func(t *testing.T) {
			j := &job{mark: fmt.Sprintf("TUTTI_TEST_MARK=bench%d", time.Now().UnixNano())}
			args := append(c.before, "bench", "--op", "allreduce", "-e", "1K", "--budget", "5ms", "--duration", "1h", "--json")
			j.cmd = commandOf(t, []string{j.mark}, append(args, c.after...)...)
			j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.out
			j.begin(t)
			j.out.Await(t, `"allreduce"`, 3)
			_ = j.cmd.Process.Signal(os.Interrupt)
			if code := j.wait(t); code != 130 || !strings.Contains(j.out.String(), c.says) {
				t.Errorf("code %d:\n%s", code, &j.out)
			}
			j.checkNoProcesses(t)
		})
	}
}

func TestBenchDuration(t *testing.T) {
	var got result
	for _, d := range []string{"500ms", "5s", "30s"} { // a busy machine may complete only one pass
		got = tuttiWith(t, nil, append([]string{"bench", "--engine", "local", "-n", "2", "--op", "allreduce", "-b", "1K", "-e", "1K", "--duration", d}, fewIters...)...)
		if got.code == 0 && strings.Contains(got.out, "passes") && strings.Count(got.out, "\nallreduce") == 1 {
			return
		}
	}
	t.Errorf("code %d:\n%s%s", got.code, got.out, got.err)
}

// TestBenchAgainst compares a run with an edited earlier run.
func TestBenchAgainst(t *testing.T) {
	args := append([]string{"bench", "--engine", "local", "-n", "2", "--op", "allreduce,barrier", "-b", "64", "-e", "1M", "-f", "128"}, fewIters...)
	got := tuttiWith(t, nil, append(args, "--json")...)
	list := results(t, got.out)
	if got.code != 0 || len(list) != 4 {
		t.Fatalf("code %d, %s, %+v", got.code, got.err, list)
	}
	// In the earlier run all points but the last are a billion times faster, and the
	// last is missing.
	var old strings.Builder
	for i, r := range list {
		r.P50, r.Min = r.P50/1e9, r.Min/1e9
		if i == 3 {
			r.Ranks = 7
		}
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		old.Write(append(line, '\n'))
	}
	path := filepath.Join(t.TempDir(), "old.json")
	if err := os.WriteFile(path, []byte(old.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	got = tuttiWith(t, nil, append(args, "--against", path)...)
	if got.code != 0 || !strings.Contains(got.out, "3 slower beyond the noise (*), of 3 points") || strings.Count(got.out, "% *\n") != 3 ||
		!strings.Contains(got.out, "      new\n") {
		t.Errorf("code %d:\n%s%s", got.code, got.out, got.err)
	}
	got = tuttiWith(t, nil, append(args, "--json", "--against", path)...)
	if len(results(t, got.out)) != 4 || !strings.Contains(got.err, "3 slower beyond the noise") {
		t.Errorf("code %d:\n%s%s", got.code, got.out, got.err)
	}
}

// gpuEnv makes commands load the fake GPU libraries.
func gpuEnv(t *testing.T) []string {
	t.Helper()
	skipUnlessLinux(t)
	if !hasGPU {
		t.Skip("built without GPUs")
	}
	libs, err := fakegpu.Build(fakegpu.Newest)
	if err != nil {
		t.Skip(err)
	}
	return []string{"TUTTI_CUDA_LIBRARY=" + libs.CUDA, "TUTTI_NCCL_LIBRARY=" + libs.NCCL}
}

// TestBenchGPU runs on the fake GPU libraries, which auto selects. Without NCCL auto uses the CPU,
// and an engine that was asked for fails.
func TestBenchGPU(t *testing.T) {
	env := gpuEnv(t)
	got := tuttiWith(t, env, append([]string{"bench", "-n", "2", "--json", "--reduce", "sum,avg", "--dtype", "float32,bfloat16", "-b", "1K", "-e", "1K"}, fewIters...)...)
	list := results(t, got.out)
	if got.code != 0 || len(list) != 23 {
		t.Fatalf("code %d, %d rows, %s", got.code, len(list), got.err)
	}
	for _, r := range list {
		if r.Engine != "nccl" || r.Wrong != 0 {
			t.Errorf("%+v", r)
		}
	}
	got = tuttiWith(t, append(env, "TUTTI_NCCL_LIBRARY=/nowhere/libnccl.so"), append([]string{"bench", "--op", "barrier"}, fewIters...)...)
	if got.code != 0 || !strings.Contains(got.out, "engine shm") || !strings.Contains(got.out, "note: 8 GPUs not used: NCCL (libnccl) was not found (tried /nowhere/libnccl.so") {
		t.Errorf("code %d, %s%s", got.code, got.out, got.err)
	}
	got = tuttiWith(t, []string{"TUTTI_CUDA_LIBRARY=/nowhere/libcuda.so"}, "bench", "--engine", "nccl")
	if got.code != bench.ExitFailed || !strings.Contains(got.err, "/nowhere/libcuda.so") || strings.Count(got.err, "\n") != 1 {
		t.Errorf("code %d, %s", got.code, got.err)
	}
}

// TestBenchBindGPU checks that ranks that share a GPU, and are therefore started twice,
// divide the CPUs only once. It needs four CPUs.
func TestBenchBindGPU(t *testing.T) {
	env := append(gpuEnv(t), "TUTTI_FAKE_DEVICES=1")
	page := filepath.Join(t.TempDir(), "page.html")
	got := tuttiWith(t, env, append([]string{"bench", "-n", "2", "--engine", "nccl", "--bind", "--op", "barrier", "--html", page}, fewIters...)...)
	text, err := os.ReadFile(page)
	if got.code != 0 || err != nil {
		t.Fatalf("code %d, %s, %v", got.code, got.err, err)
	}
	all := len(affinity.Allowed())
	if want := fmt.Sprintf("%d, each rank bound to its own", all); all > 1 && !strings.Contains(string(text), want) {
		t.Errorf("the page does not say %q", want)
	}
}

// TestBenchPage checks that the page shows the figures of --json, loads nothing from
// the network, and can be used for a comparison.
func TestBenchPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.html")
	args := append([]string{"bench", "--engine", "local", "-n", "3", "--op", "allreduce,gather,barrier", "-b", "64", "-e", "64K", "-f", "32"}, fewIters...)
	got := tuttiWith(t, []string{"NCCL_DEBUG=</script><b>"}, append(args, "--json", "--html", path, "--pairs")...)
	if got.code != 0 {
		t.Fatalf("code %d: %s", got.code, got.err)
	}
	list := results(t, got.out)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	figures := page[strings.Index(page, `id="figures"`):]
	rows := strings.Split(figures[:strings.Index(figures, "</table>")], "<tr><td>")[1:]
	var points []bench.Result
	for _, r := range list {
		if !strings.HasPrefix(r.Op, "pair ") {
			points = append(points, r)
		}
	}
	if len(points) != 7 || len(list) != 7+2*6 || len(rows) != len(points) {
		t.Fatalf("%d lines, of them %d points, and %d rows", len(list), len(points), len(rows))
	}
	for i, r := range points {
		text := func(x any) string {
			b, _ := json.Marshal(x)
			return string(b)
		}
		want := []string{r.Op, "", text(r.P50), text(r.P99), text(r.Min), text(r.AlgBW), text(r.BusBW), text(r.Wrong), text(r.Iters), r.DType, r.Reduce}
		cells := strings.Split(strings.ReplaceAll(strings.SplitN(rows[i], "</tr>", 2)[0], "</td>", ""), "<td>")
		for j := range want {
			if j == 1 {
				continue // bytes are abbreviated
			}
			var a, b float64
			if json.Unmarshal([]byte(want[j]), &a) == nil && json.Unmarshal([]byte(cells[j]), &b) == nil && a == b {
				continue
			}
			if cells[j] != want[j] {
				t.Errorf("row %d, column %d: %q, not %q", i, j, cells[j], want[j])
			}
		}
	}
	checkPageData(t, page, list)
	for _, bad := range []string{"http://", "https://", "<script>", "<b>", "src=", "url("} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	for _, want := range []string{"<svg", "prefers-color-scheme: dark", "@media print", "default-src 'none'", "Pairs of ranks", `class="heat"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	got = tuttiWith(t, nil, append(args, "--against", path)...)
	if got.code != 0 || !strings.Contains(got.out, "of 7 points") {
		t.Errorf("code %d: %s%s", got.code, got.out, got.err)
	}
}

// checkPageData checks that the run in a page and the points of its charts equal the
// output of --json.
func checkPageData(t *testing.T, page string, list []bench.Result) {
	t.Helper()
	_, rest, _ := strings.Cut(page, `<script type="application/json" id="tutti-bench">`)
	text, _, _ := strings.Cut(rest, "</script>")
	var run struct {
		Points []struct{ Result bench.Result }
		Links  []bench.Link
	}
	if err := json.Unmarshal([]byte(text), &run); err != nil {
		t.Fatal(err)
	}
	var held []bench.Result
	for _, p := range run.Points {
		held = append(held, p.Result)
	}
	for _, l := range run.Links {
		held = append(held, l.Small, l.Large)
	}
	if !slices.Equal(held, list) {
		t.Errorf("the page holds %+v, not %+v", held, list)
	}
	for _, p := range run.Points {
		r := p.Result
		_, chart, _ := strings.Cut(page, "<title>"+r.Op+", time</title>")
		chart, _, _ = strings.Cut(chart, "</svg>")
		for name, x := range map[string]float64{"p50": r.P50, "p99": r.P99, "min": r.Min} {
			value, err := json.Marshal(x)
			if err != nil {
				t.Fatal(err)
			}
			size := map[int]string{2048: "2K", 65536: "64K"}[r.Bytes]
			if size == "" {
				size = fmt.Sprint(r.Bytes)
			}
			if dot := fmt.Sprintf("<title>%s, %s: %s</title>", name, size, value); r.Bytes > 0 && !strings.Contains(chart, dot) {
				t.Errorf("the chart of %s has no %q", r.Op, dot)
			}
		}
	}
}

// TestBenchPageInBrowser opens a page, which must log no error and load nothing from the network.
// It is skipped without chromium, or if that does not end within a minute.
func TestBenchPageInBrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil || testing.Short() {
		t.Skip("there is no chromium, or no time for it")
	}
	dir := t.TempDir()
	page, log := filepath.Join(dir, "report.html"), filepath.Join(dir, "net.json")
	got := tuttiWith(t, nil, append([]string{"bench", "--engine", "local", "-n", "3", "--op", "allreduce", "-b", "64", "-e", "64K", "-f", "32", "--pairs", "--html", page}, fewIters...)...)
	if got.code != 0 {
		t.Fatalf("code %d: %s", got.code, got.err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // browsers sometimes hang
	defer cancel()
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-extensions", "--user-data-dir="+filepath.Join(dir, "profile"), "--enable-logging=stderr", "--v=0",
		"--host-resolver-rules=MAP * ~NOTFOUND", "--log-net-log="+log, "--dump-dom", "file://"+page)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		t.Skipf("chromium does not start here, or does not end: %v", err)
	}
	if !strings.Contains(out.String(), "allreduce, time") {
		t.Errorf("the page was not shown: %.200s", &out)
	}
	if strings.Contains(stderr.String(), "CONSOLE") {
		t.Errorf("the page has complaints: %s", &stderr)
	}
	asked, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	// The browser's own requests have no page as their origin.
	for _, from := range regexp.MustCompile(`"initiator":"[^"]*"`).FindAllString(string(asked), -1) {
		if from != `"initiator":"not an origin"` {
			t.Errorf("the page asked somebody: %s", from)
		}
	}
}
