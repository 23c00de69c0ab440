package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/store"
)

const deadline = 3 * time.Minute

// A job is one tutti process that a test has started. Goroutines of os/exec write to out, which may
// be read meanwhile.
type job struct {
	cmd  *exec.Cmd
	mark string
	out  proctest.Output
}

// start starts `tutti run` with flags. Its ranks run a program of rankPrograms.
func start(t testing.TB, act string, env []string, flags ...string) *job {
	t.Helper()
	j := newJob(t, act, env, flags...)
	j.begin(t)
	return j
}

func newJob(t testing.TB, act string, env []string, flags ...string) *job {
	t.Helper()
	self := proctest.Self(t)
	mark := make([]byte, 16)
	_, _ = rand.Read(mark)
	j := &job{mark: "TUTTI_TEST_MARK=" + hex.EncodeToString(mark)}
	j.cmd = exec.Command(self, append(append([]string{"run"}, flags...), "--", self)...)
	// With the race detector, programs sleep for a second at exit unless this is set.
	j.cmd.Env = append(append(os.Environ(), j.mark, "TUTTI_TEST_ACT="+act, "GORACE=atexit_sleep_ms=0"), env...)
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.out
	return j
}

func (j *job) begin(t testing.TB) {
	t.Helper()
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.cmd.Process.Kill() })
}

// wait waits for the exit, and returns the code; -1 if a signal killed the process. After the
// deadline it fails the test and kills the process.
func (j *job) wait(t testing.TB) int {
	t.Helper()
	timer := time.AfterFunc(deadline, func() {
		t.Errorf("tutti run does not end:\n%s", &j.out)
		_ = j.cmd.Process.Kill()
	})
	defer timer.Stop()
	_ = j.cmd.Wait()
	return j.cmd.ProcessState.ExitCode()
}

// processes returns the processes of the job that still run.
func (j *job) processes() (pids []int) {
	entries, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, e := range entries {
		text, err := os.ReadFile(e)
		if err == nil && bytes.Contains(text, []byte(j.mark)) {
			pid, _ := strconv.Atoi(strings.Split(e, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

// checkNoProcesses fails if a process still runs.
func (j *job) checkNoProcesses(t *testing.T) {
	t.Helper()
	if pids := j.processes(); len(pids) > 0 {
		t.Errorf("processes %v are left", pids)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the environment shows that the test started it
		}
	}
}

func skipUnlessLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux lets a launcher inherit what ranks leave behind")
	}
}

// TestHello runs a job in which nothing fails: every rank prints the sum, and the launcher prints
// nothing.
func TestHello(t *testing.T) {
	j := start(t, "hello", nil, "-n", "4")
	if code := j.wait(t); code != 0 {
		t.Errorf("code %d", code)
	}
	for r := range 4 {
		if want := fmt.Sprintf("[%d] sum 6 of 4, attempt 0\n", r); !strings.Contains(j.out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, &j.out)
		}
	}
	if strings.Contains(j.out.String(), "tutti:") || strings.Contains(j.out.String(), "\x1b") {
		t.Errorf("a report, or colours:\n%s", &j.out)
	}
	j.checkNoProcesses(t)
}

// TestFailures has a rank fail in all ways. All ranks end, the exit code is that
// rank's, the report names it, and no process remains.
func TestFailures(t *testing.T) {
	skipUnlessLinux(t)
	for act, c := range map[string]struct {
		code  int
		grace string // long enough for them to report their activity
		says  []string
	}{
		"exit 3":   {3, "1m", []string{"rank 1 failed first: exit code 3", "the last of it", "Barrier#", "; ended by tutti: killed by SIGTERM"}},
		"panic":    {2, "500ms", []string{"rank 1 failed first: panicked, exit code 2", "panic: no way"}},
		"killed":   {137, "500ms", []string{"rank 1 failed first: killed by SIGKILL"}},
		"stubborn": {3, "3s", []string{"rank 1 failed first: exit code 3", "rank 2 was in Barrier#", " when it failed; ended by tutti: killed by SIGKILL"}},
		// Other ranks fail before the process of rank 1 has exited.
		"panic with Close": {2, "500ms", []string{"rank 1 failed first: panicked, exit code 2", "panic: no way"}},
		"roots differ": {1, "500ms", []string{
			"ranks disagree", "Broadcast(1 x int32, root 0)", "Broadcast(1 x int32, root 1)", "rank 1: Broadcast #1", "rank 0: Broadcast #1",
		}},
		"closes early": {1, "500ms", []string{
			"rank 1 has closed the Comm; all ranks must make the same calls before Close", "rank 1 exited with code 0 while other ranks waited for it",
		}},
		"exits early": {1, "500ms", []string{
			"AllReduce #2 on rank ", "rank 1 exited without Close; call Shrink", "rank 1 exited with code 0 while other ranks waited for it",
		}},
		"leaving":      {3, "500ms", []string{"rank 1 failed first: exit code 3"}},
		"leaving well": {0, "500ms", nil},
		"stays away":   {1, "500ms", []string{"2 of 3 ranks joined; rank 1 missing", "failed first: exit code 1", "rank 1 never called Join; ended by tutti"}},
		"goes away":    {1, "500ms", []string{"rank 1 failed first: exited without calling Join, and rank"}},
	} {
		t.Run(act, func(t *testing.T) {
			t.Parallel()
			j := start(t, act, nil, "-n", "3", "-grace", c.grace)
			if code := j.wait(t); code != c.code {
				t.Errorf("code %d, want %d", code, c.code)
			}
			j.checkNoProcesses(t)
			for _, says := range c.says {
				if !strings.Contains(j.out.String(), says) {
					t.Errorf("%q is missing:\n%s", says, &j.out)
				}
			}
		})
	}
}

// The launcher's processes, each the parent of the next.
const (
	first = iota
	watchdogProcess
	leader
)

// launchers returns the processes of a job's launcher.
func (j *job) launchers(t *testing.T) (pids [3]int) {
	t.Helper()
	pids[first] = j.cmd.Process.Pid
	pids[watchdogProcess] = onlyChild(t, pids[first])
	pids[leader] = onlyChild(t, pids[watchdogProcess])
	return pids
}

// TestLauncherEnds stops the launcher, and kills any one of its processes, while ranks
// have orphans.
func TestLauncherEnds(t *testing.T) {
	skipUnlessLinux(t)
	for name, c := range map[string]struct {
		sig   syscall.Signal
		which int
		code  int
	}{
		"interrupted":            {syscall.SIGINT, first, 130},
		"terminated":             {syscall.SIGTERM, first, 143},
		"hung up":                {syscall.SIGHUP, first, 129},
		"killed":                 {syscall.SIGKILL, first, -1},
		"watchdog killed":        {syscall.SIGKILL, watchdogProcess, 137},
		"watchdog interrupted":   {syscall.SIGINT, watchdogProcess, 130},
		"watchdog quit by hand":  {syscall.SIGABRT, watchdogProcess, 2},
		"leader killed":          {syscall.SIGKILL, leader, 137},
		"leader interrupted":     {syscall.SIGINT, leader, 130},
		"leader quit by hand":    {syscall.SIGABRT, leader, 2},
		"stopped, first killed":  {syscall.SIGKILL, first, -1},
		"stopped, leader killed": {syscall.SIGKILL, leader, 137},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := start(t, "waiting", nil, "-n", "2", "-grace", "500ms")
			j.out.Await(t, "ready", 2)
			if n := len(j.processes()); n != 7 { // three launchers, two ranks, two orphans
				t.Errorf("%d processes before the end", n)
			}
			pids := j.launchers(t)
			if strings.HasPrefix(name, "stopped") {
				proctest.Stop(t, pids[leader]) // it does nothing any more
			}
			if err := syscall.Kill(pids[c.which], c.sig); err != nil {
				t.Fatal(err)
			}
			if code := j.wait(t); code != c.code {
				t.Errorf("code %d, want %d:\n%s", code, c.code, &j.out)
			}
			j.awaitNoProcesses() // the awaited process may not be the one that ends the rest
			j.checkNoProcesses(t)
		})
	}
}

// onlyChild returns the only child of a process. Another number of children fails the test; a
// system that does not list children skips it.
func onlyChild(t *testing.T, parent int) int {
	t.Helper()
	var children []string
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, strings.Fields(string(text))...)
	}
	if len(files) == 0 {
		t.Skip("this system does not list children")
	}
	if len(children) != 1 {
		t.Fatalf("children %q", children)
	}
	pid, err := strconv.Atoi(children[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// TestSignals forwards signals to all ranks, once each. A signal that ends the job determines its
// exit code.
func TestSignals(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130, syscall.SIGUSR1: 0} {
		j := start(t, "gentle", nil, "-n", "2")
		j.out.Await(t, "ready", 2)
		if err := j.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if got := j.wait(t); got != code {
			t.Errorf("%v: code %d, want %d", sig, got, code)
		}
		if n := strings.Count(j.out.String(), "got "+sig.String()); n != 2 {
			t.Errorf("%v came %d times:\n%s", sig, n, &j.out)
		}
	}
}

// TestRestarts has a rank fail in the first attempt, and in every attempt: the exit code is that of
// the last attempt.
func TestRestarts(t *testing.T) {
	dir := t.TempDir()
	j := start(t, "second time", nil, "-n", "2", "-restarts", "2", "-log-dir", dir)
	if code := j.wait(t); code != 0 {
		t.Errorf("code %d", code)
	}
	for _, says := range []string{"rank 1 failed first: exit code 1", "all ranks are started again", "[0] sum 1 of 2, attempt 1"} {
		if !strings.Contains(j.out.String(), says) {
			t.Errorf("%q is missing:\n%s", says, &j.out)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "attempt-1", "rank-1.out"))
	if err != nil || string(text) != "sum 1 of 2, attempt 1\n" {
		t.Errorf("%q, %v", text, err)
	}
	j = start(t, "exit 3", nil, "-n", "2", "-restarts", "1")
	if code := j.wait(t); code != 3 || !strings.Contains(j.out.String(), "that was attempt 2") {
		t.Errorf("code %d:\n%s", code, &j.out)
	}
}

// TestEnvironment checks the variables that rank 1 sees, PyTorch's included, and the warning about
// the store for PyTorch.
func TestEnvironment(t *testing.T) {
	names := "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK ROLE_RANK ROLE_WORLD_SIZE MASTER_ADDR " +
		"TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE " +
		"CUDA_VISIBLE_DEVICES TUTTI_LIFELINE TUTTI_CERT"
	j := start(t, "environment", []string{"TUTTI_TEST_NAMES=" + names, "CUDA_VISIBLE_DEVICES=4,6"}, "-n", "2", "-gpus", "visible", "-torch", "-bind")
	if code := j.wait(t); code != 0 {
		t.Errorf("code %d", code)
	}
	for _, want := range []string{
		"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0", "ROLE_RANK=1", "ROLE_WORLD_SIZE=2",
		"MASTER_ADDR=127.0.0.1", "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_MAX_RESTARTS=0", "TORCHELASTIC_RUN_ID=tutti",
		"TORCHELASTIC_USE_AGENT_STORE=True", "CUDA_VISIBLE_DEVICES=6", "TUTTI_LIFELINE=", "TUTTI_CERT=",
	} {
		if !strings.Contains(j.out.String(), "[1] "+want+"\n") {
			t.Errorf("%q is missing:\n%s", want, &j.out)
		}
	}
	if !strings.Contains(j.out.String(), "the store for PyTorch has no authentication") {
		t.Error("the output does not mention the store for PyTorch")
	}
}

// TestTorch uses the plain store as PyTorch does, also after a failure: no key of the
// first attempt may remain.
func TestTorch(t *testing.T) {
	j := start(t, "trainer", nil, "-n", "2", "-torch", "-restarts", "1")
	if code := j.wait(t); code != 0 {
		t.Errorf("code %d", code)
	}
	if n := strings.Count(j.out.String(), "attempt 1: id 1, counted in before: false"); n != 2 {
		t.Errorf("%d ranks had a new store:\n%s", n, &j.out)
	}
	j.checkNoProcesses(t)
}

// TestStdin forwards the standard input to rank 0; the other rank has none. The rank numbers are
// coloured.
func TestStdin(t *testing.T) {
	j := newJob(t, "stdin", nil, "-n", "2", "-stdin", "-color", "always")
	j.cmd.Stdin = strings.NewReader("for rank 0")
	j.begin(t)
	if code := j.wait(t); code != 0 {
		t.Errorf("code %d", code)
	}
	for _, want := range []string{"\x1b[36m[0] \x1b[0mread \"for rank 0\"\n", "\x1b[33m[1] \x1b[0mread \"\"\n"} {
		if !strings.Contains(j.out.String(), want) {
			t.Errorf("%q is missing: %q", want, j.out.String())
		}
	}
}

// TestNodes runs jobs of two nodes on one host: one that succeeds, one that fails, and one that is
// started again. Both launchers return the code of the rank that failed first.
func TestNodes(t *testing.T) {
	secret := "TUTTI_SECRET=0123456789abcdef"
	two := func(act string, flags ...string) (codes [2]int, jobs [2]*job) {
		addr := proctest.FreeAddr(t)
		for i := range jobs {
			all := append([]string{"-nodes", "2", "-node", strconv.Itoa(i), "-addr", addr, "-n", strconv.Itoa(1 + i)}, flags...)
			jobs[i] = start(t, act, []string{secret}, all...)
		}
		for i, j := range jobs {
			codes[i] = j.wait(t)
			j.checkNoProcesses(t)
		}
		return codes, jobs
	}
	codes, jobs := two("hello")
	if codes != [2]int{0, 0} || !strings.Contains(jobs[1].out.String(), "[2] sum 3 of 3") {
		t.Errorf("%v\n%s\n%s", codes, &jobs[0].out, &jobs[1].out)
	}
	codes, jobs = two("exit 3")
	if codes != [2]int{3, 3} || !strings.Contains(jobs[0].out.String(), "rank 1 failed first") {
		t.Errorf("%v\n%s\n%s", codes, &jobs[0].out, &jobs[1].out)
	}
	codes, jobs = two("second time", "-restarts", "1")
	if codes != [2]int{0, 0} || !strings.Contains(jobs[0].out.String(), "[0] sum 3 of 3, attempt 1") {
		t.Errorf("%v\n%s\n%s", codes, &jobs[0].out, &jobs[1].out)
	}
}

// TestNodesReplaced kills the launcher of a node while it waits for another node's, and
// starts it again. While it runs, a second one is refused.
func TestNodesReplaced(t *testing.T) {
	skipUnlessLinux(t)
	const secret = "0123456789abcdef"
	addr := proctest.FreeAddr(t)
	node := func(n int) *job {
		return start(t, "hello", []string{"TUTTI_SECRET=" + secret}, "-nodes", "3", "-node", strconv.Itoa(n), "-addr", addr)
	}
	zero, isRank1 := node(0), node(1)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	s, err := store.Dial(ctx, addr, store.Config{Secret: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Wait(ctx, "launch/ranks/1"); err != nil {
		t.Fatal(err)
	}
	second := node(1)
	if code := second.wait(t); code != 1 || !strings.Contains(second.out.String(), "node 1 is already in the job: process ") {
		t.Errorf("code %d:\n%s", code, &second.out)
	}
	kill(t, isRank1.cmd.Process.Pid)
	if code := isRank1.wait(t); code == 0 {
		t.Error("it was not killed")
	}
	isRank1.awaitNoProcesses()
	isRank1, two := node(1), node(2)
	for i, j := range []*job{zero, isRank1, two} {
		if code := j.wait(t); code != 0 || !strings.Contains(j.out.String(), fmt.Sprintf("[%d] sum 3 of 3", i)) {
			t.Errorf("node %d: code %d:\n%s", i, code, &j.out)
		}
		j.checkNoProcesses(t)
	}
}

// TestNodesMiss has a node wait for another until a timeout, and until it is stopped,
// while a launcher with another secret tries to join.
func TestNodesMiss(t *testing.T) {
	flags := []string{"-nodes", "2", "-addr", proctest.FreeAddr(t)}
	env := []string{"TUTTI_SECRET=0123456789abcdef"}
	alone := start(t, "hello", env, append(flags, "-join-time", "500ms")...)
	if code := alone.wait(t); code != 1 || !strings.Contains(alone.out.String(), "node 1 of 2 has not connected") {
		t.Errorf("code %d:\n%s", code, &alone.out)
	}
	elastic := []string{"-nodes", "3", "-addr", flags[3], "-elastic", "1:3"}
	isRank1 := start(t, "hello", env, append(elastic, "-node", "1")...)
	alone = start(t, "hello", env, append(elastic, "-join-time", "2s")...)
	for _, j := range []*job{alone, isRank1} {
		if code := j.wait(t); code != 1 || !strings.Contains(j.out.String(), "node 2 of 3 has not connected") {
			t.Errorf("code %d:\n%s", code, &j.out)
		}
	}
	alone = start(t, "hello", env, flags...)
	other := start(t, "hello", []string{"TUTTI_SECRET=something else than that"}, append(flags, "-node", "1")...)
	if code := other.wait(t); code != 1 || !strings.Contains(other.out.String(), "the secrets differ") {
		t.Errorf("code %d:\n%s", code, &other.out)
	}
	if err := alone.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := alone.wait(t); code != 143 {
		t.Errorf("code %d:\n%s", code, &alone.out)
	}
	alone.checkNoProcesses(t)
	other.checkNoProcesses(t)
}

// TestAwaitHosts has a node whose ranks succeed long before those of another: it waits,
// and can be stopped meanwhile.
func TestAwaitHosts(t *testing.T) {
	addr := proctest.FreeAddr(t)
	env := []string{"TUTTI_SECRET=0123456789abcdef", "TUTTI_TEST_NAMES=RANK"}
	flags := []string{"-nodes", "2", "-addr", addr, "-grace", "500ms"}
	long := start(t, "gentle", env, append(flags, "-node", "0")...)
	short := start(t, "environment", env, append(flags, "-node", "1")...)
	long.out.Await(t, "ready", 1)
	short.out.Await(t, "RANK=1", 1)
	if err := short.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if a, b := long.wait(t), short.wait(t); a != 130 || b != 130 {
		t.Errorf("codes %d and %d\n%s\n%s", a, b, &long.out, &short.out)
	}
	if !strings.Contains(long.out.String(), "stopped by SIGINT") {
		t.Errorf("%s", &long.out)
	}
}

// TestSecondRank starts a second process of a rank, and a second job on the same port.
// The job reports both and continues.
func TestSecondRank(t *testing.T) {
	j := start(t, "impostor", nil, "-n", "2")
	if code := j.wait(t); code != 0 {
		t.Errorf("code %d", code)
	}
	for _, says := range []string{"the impostor said: tutti: Join on rank 1", "tutti: refused a rank"} {
		if strings.Count(j.out.String(), says) != 1 {
			t.Errorf("%q is missing:\n%s", says, &j.out)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	j = start(t, "hello", nil, "-n", "2", "-addr", l.Addr().String())
	if code := j.wait(t); code != 1 || !strings.Contains(j.out.String(), "address already in use") {
		t.Errorf("code %d:\n%s", code, &j.out)
	}
}

// TestEarlyStop stops a launcher that still waits for another host. The exit code is that of the
// signal, and no process remains.
func TestEarlyStop(t *testing.T) {
	j := start(t, "hello", []string{"TUTTI_SECRET=0123456789abcdef"}, "-nodes", "2", "-addr", "127.0.0.1:0")
	// When there are two processes, the first forwards signals, and the second ends by
	// them, whether or not it catches them yet.
	for end := time.Now().Add(deadline); len(j.processes()) < 2 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if err := j.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := j.wait(t); code != 143 {
		t.Errorf("code %d:\n%s", code, &j.out)
	}
	j.checkNoProcesses(t)
}

// TestUsage refuses contradictory flags, when they are parsed or when the job starts.
func TestUsage(t *testing.T) {
	for says, args := range map[string][]string{
		"no program":        {"-n", "2"},
		"-gpus is":          {"-gpus", "some", "x"},
		"-color is":         {"-color", "some", "x"},
		"no flag --what":    {"-what", "x"},
		"TUTTI_NODES is":    {"x"},
		"TUTTI_LATE is":     {"x"},
		"--elastic is":      {"-elastic", "3:2", "x"},
		"leave -n out":      {"-n", "3", "-elastic", "2:4", "x"},
		"--replacements is": {"-replacements", "4", "x"},
		"-n is -1":          {"-n", "-1", "x"},
	} {
		getenv := func(name string) string {
			if says == name+" is" {
				return "many"
			}
			return ""
		}
		if _, err := parseRun(args, getenv); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
	for _, c := range []struct {
		says  string
		flags []string
	}{
		{"needs the address of node 0", []string{"-nodes", "2"}},
		{"there is no secret; openssl", []string{"-nodes", "2", "-addr", "h:1"}},
		{"node 2 of 2 nodes", []string{"-nodes", "2", "-node", "2", "-addr", "h:1"}},
		{"cannot lose a rank", []string{"-elastic", "1:2", "-torch"}},
	} {
		j := start(t, "hello", nil, c.flags...)
		if code := j.wait(t); code != 1 {
			t.Errorf("code %d", code)
		}
		if !strings.Contains(j.out.String(), c.says) {
			t.Errorf("%s; want %q", &j.out, c.says)
		}
	}
}

// BenchmarkStart measures a job of 8 ranks with one AllReduce, from the start of tutti
// run to its end.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		j := start(b, "hello", nil, "-n", "8")
		if code := j.wait(b); code != 0 || strings.Count(j.out.String(), "sum 28 of 8") != 8 {
			b.Fatalf("code %d:\n%s", code, &j.out)
		}
	}
}
