package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/proctest"
)

// buildElastic builds examples/elastic.
func buildElastic(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "elastic")
	if text, err := exec.Command("go", "build", "-o", path, "../../examples/elastic").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return path
}

// elastic starts tutti run with flags and examples/elastic, which runs until it is
// asked to end.
func elastic(t *testing.T, program string, env []string, flags ...string) *job {
	t.Helper()
	return elasticCommand(t, []string{program}, env, flags...)
}

func elasticCommand(t *testing.T, command, env []string, flags ...string) *job {
	t.Helper()
	j := newJob(t, "elastic", env, flags...)
	j.cmd.Args = append(append(j.cmd.Args[:len(j.cmd.Args)-1], command...), "-steps", "1000000000", "-pause", "1ms")
	j.begin(t)
	return j
}

// process returns the first, or the newest, process that printed that it is the given
// rank of size.
func (j *job) process(t *testing.T, rank, size int, newest bool) int {
	t.Helper()
	j.out.Await(t, fmt.Sprintf(" is rank %d of %d", rank, size), 1)
	all := regexp.MustCompile(fmt.Sprintf(`process (\d+) is rank %d of %d`, rank, size)).FindAllStringSubmatch(j.out.String(), -1)
	m := all[0]
	if newest {
		m = all[len(all)-1]
	}
	pid, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// awaitSize waits until all ranks have printed their size. A rank that has not printed
// it when another dies never does.
func (j *job) awaitSize(t *testing.T, size int) {
	t.Helper()
	j.out.Await(t, fmt.Sprintf(" of %d from step", size), size)
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// checkSums checks that the given number of ranks printed the right sum.
func (j *job) checkSums(t *testing.T, want int) {
	t.Helper()
	all := regexp.MustCompile(`the sum of (\d+) squares is (\d+)`).FindAllStringSubmatch(j.out.String(), -1)
	if len(all) != want {
		t.Errorf("%d ranks have a sum, want %d:\n%s", len(all), want, &j.out)
	}
	for _, m := range all {
		n, _ := strconv.Atoi(m[1])
		if right := strconv.Itoa((n - 1) * n * (2*n - 1) / 6); m[2] != right || m[1] != all[0][1] {
			t.Errorf("%q, want %s:\n%s", m[0], right, &j.out)
		}
	}
}

func (j *job) checkOutput(t *testing.T, list ...string) {
	t.Helper()
	for _, s := range list {
		if !strings.Contains(j.out.String(), s) {
			t.Errorf("%q is missing:\n%s", s, &j.out)
		}
	}
}

// TestElastic runs examples/elastic, and kills its ranks.
func TestElastic(t *testing.T) {
	skipUnlessLinux(t)
	program := buildElastic(t)
	for name, test := range map[string]func(t *testing.T, program string){
		"replaced": elasticReplaced, "too few": elasticTooFew, "two hosts": elasticHosts, "only rank": elasticOnlyRank, "wrapped": elasticWrapped,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, program)
		})
	}
}

// elasticReplaced kills rank 0, and then another rank. Both are replaced, the sum is
// exact, and no process remains.
func elasticReplaced(t *testing.T, program string) {
	j := elastic(t, program, nil, "-elastic", "2:3")
	j.awaitSize(t, 3)
	kill(t, j.process(t, 0, 3, false))
	j.out.Await(t, " of 3 from step", 6) // three of the first Comm, and three of the Comm with the replacement
	kill(t, j.process(t, 0, 3, true))
	j.out.Await(t, " of 3 from step", 9)
	if err := j.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if code := j.wait(t); code != 0 {
		t.Errorf("code %d", code)
	}
	j.checkSums(t, 3)
	j.checkOutput(t, "tutti: rank 0 is lost: killed by SIGKILL", "it is replaced (1 of 9)", "tutti: rank 0 was lost after ",
		"; replacement 1 started after ", "it is replaced (2 of 9)", "and was admitted as rank 2 of 3")
	if strings.Contains(j.out.String(), "failed first") {
		t.Errorf("it says that it failed:\n%s", &j.out)
	}
	j.checkNoProcesses(t)
}

// elasticTooFew loses more ranks than allowed. The exit code is that of the first loss.
func elasticTooFew(t *testing.T, program string) {
	j := elastic(t, program, nil, "-elastic", "2:3", "-replacements", "0", "-grace", "500ms")
	j.awaitSize(t, 3)
	second := j.process(t, 2, 3, false)
	kill(t, j.process(t, 1, 3, false))
	j.process(t, 1, 2, false)
	if err := syscall.Kill(second, syscall.SIGABRT); err != nil { // the exit code of a Go program is then 2
		t.Fatal(err)
	}
	if code := j.wait(t); code != 137 {
		t.Errorf("code %d", code)
	}
	j.checkOutput(t, "it is not replaced: the limit is 0 replacements", "1 of 3 ranks are left, and 2 are needed",
		"rank 1 failed first: killed by SIGKILL", "rank 2 was lost after", "it was not replaced", "tutti: rank 0 ", "; ended by tutti")
	j.checkNoProcesses(t)
}

// elasticWrapped kills the shell that started a rank: the rank, an orphan, is ended,
// too.
func elasticWrapped(t *testing.T, program string) {
	shell := []string{"sh", "-c", `trap : USR1; "$0" "$@"; exit $?`, program}
	j := elasticCommand(t, shell, nil, "-elastic", "2:3")
	j.awaitSize(t, 3)
	rank := j.process(t, 1, 3, false)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", rank))
	if err != nil {
		t.Fatal(err)
	}
	parent, err := strconv.Atoi(strings.Fields(string(text))[3])
	if err != nil {
		t.Fatal(err)
	}
	kill(t, parent)
	j.out.Await(t, " of 3 from step", 6)
	if pids := j.processes(); slices.Contains(pids, rank) || slices.Contains(pids, parent) || len(pids) != 9 {
		t.Errorf("%v run; of rank 1, %d is left of %d", pids, rank, parent)
	}
	if err := j.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if code := j.wait(t); code != 0 {
		t.Errorf("code %d", code)
	}
	j.checkSums(t, 3)
	j.checkNoProcesses(t)
}

// elasticHosts runs two nodes on one host, each with two ranks. Node 0 loses its first
// rank, and node 1 is not affected.
func elasticHosts(t *testing.T, program string) {
	addr := proctest.FreeAddr(t)
	var jobs [2]*job
	for i := range jobs {
		jobs[i] = elastic(t, program, []string{"TUTTI_SECRET=0123456789abcdef"}, "-nodes", "2", "-node", strconv.Itoa(i), "-addr", addr, "-elastic", "2:4")
	}
	for _, j := range jobs {
		j.out.Await(t, " of 4 from step", 2)
	}
	kill(t, jobs[1].process(t, 2, 4, false))
	jobs[1].out.Await(t, " of 4 from step", 4)
	if err := jobs[0].cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	for i, j := range jobs {
		if code := j.wait(t); code != 0 {
			t.Errorf("code %d", code)
		}
		j.checkSums(t, 2)
		if lost := strings.Contains(j.out.String(), "rank 2 was lost"); lost != (i == 1) {
			t.Errorf("node %d:\n%s", i, &j.out)
		}
		j.checkNoProcesses(t)
	}
}

// elasticOnlyRank kills the only rank of a host, twice. Its launcher then runs no
// process, the second time for a second, and starts another.
func elasticOnlyRank(t *testing.T, program string) {
	addr := proctest.FreeAddr(t)
	var jobs [2]*job
	for i := range jobs {
		jobs[i] = elastic(t, program, []string{"TUTTI_SECRET=0123456789abcdef"}, "-nodes", "2", "-node", strconv.Itoa(i), "-addr", addr, "-elastic", "1:2")
	}
	for times := 1; times <= 3; times++ {
		for _, j := range jobs {
			j.out.Await(t, " of 2 from step", times)
		}
		if times < 3 {
			kill(t, jobs[1].process(t, 1, 2, true))
		}
	}
	if err := jobs[0].cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if code := j.wait(t); code != 0 {
			t.Errorf("code %d:\n%s", code, &j.out)
		}
		j.checkSums(t, 1)
		j.checkNoProcesses(t)
	}
	jobs[1].checkOutput(t, "tutti: rank 1 is lost: killed by SIGKILL", "it is replaced in 1s (2 of 3)", "tutti: replacement 1 of rank 1 was lost after ", "; replacement 2 started after ")
}

// TestElasticEnds has replacements that die before they are admitted, replacements that
// are never admitted, and a rank that is lost before all have joined.
func TestElasticEnds(t *testing.T) {
	skipUnlessLinux(t)
	for act, c := range map[string]struct {
		code  int
		flags []string
		await string
		says  []string
	}{
		"unwelcome": {0, nil, "waits", []string{"replacement 1 started after", " and was not admitted"}},
		"hopeless": {0, []string{"-replacements", "2"}, "it is not replaced: the limit is 2 replacements", []string{
			"replacement 1 of rank 1 is lost: exit code 4", "it is replaced in 1s (2 of 2)", "replacement 2 of rank 1 was lost", "it was not replaced",
		}},
		"early": {3, nil, "", []string{"rank 1 failed first: exit code 3"}},
	} {
		t.Run(act, func(t *testing.T) {
			t.Parallel()
			gate := filepath.Join(t.TempDir(), "gate")
			j := start(t, act, []string{"TUTTI_TEST_GATE=" + gate}, append(c.flags, "-elastic", "2:3", "-grace", "500ms")...)
			if c.await != "" {
				j.out.Await(t, c.await, 1)
				if err := os.WriteFile(gate, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if code := j.wait(t); code != c.code {
				t.Errorf("code %d, want %d", code, c.code)
			}
			j.checkOutput(t, c.says...)
			j.checkNoProcesses(t)
		})
	}
}

// TestElasticStopped stops a rank, and the other ranks continue without it: it is
// killed, and its replacement is admitted.
func TestElasticStopped(t *testing.T) {
	skipUnlessLinux(t)
	t.Parallel()
	j := start(t, "outlived", nil, "-elastic", "2:3", "-grace", "100ms")
	if code := j.wait(t); code != 0 {
		t.Errorf("code %d", code)
	}
	j.checkOutput(t, "tutti: rank 1 still runs although the other ranks continued without it; it is killed\n",
		"tutti: rank 1 was lost after ", "killed by SIGKILL; replacement 1 started after ", "and was admitted as rank 2 of 3\n")
	j.checkNoProcesses(t)
}

// shrinkWithoutStopped is a rank program in which rank 1 stops itself after Join. The other ranks
// run into a deadline, shrink, and grow again until a replacement is admitted.
func shrinkWithoutStopped(isRank1 bool) error {
	ctx := context.Background()
	c, err := tutti.Join(ctx, tutti.Config{ShrinkTimeout: 4 * time.Second})
	if err != nil {
		return err
	}
	if !c.Info().Late {
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if isRank1 {
			return stopSelf(ctx, c)
		}
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if err := c.Barrier(short); err == nil {
			return errors.New("rank 1 has not stopped")
		}
		if c, _, err = c.Shrink(ctx); err != nil {
			return err
		}
		for c.Size() < 3 {
			if c, err = c.Grow(ctx, 0); err != nil {
				return err
			}
		}
	}
	return errors.Join(c.Barrier(ctx), c.Close())
}

// continueWithout returns a rank program in which rank 1 dies after Join. The other ranks continue
// and admit no process until the test makes the file TUTTI_TEST_GATE. Late processes call late.
func continueWithout(late func(context.Context) error) func(isRank1 bool) error {
	return func(isRank1 bool) error {
		ctx := context.Background()
		if os.Getenv("TUTTI_LATE") != "" {
			return late(ctx)
		}
		c, err := tutti.Join(ctx, tutti.Config{})
		if err != nil {
			return err
		}
		err = c.Barrier(ctx)
		if isRank1 && err == nil {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		if err == nil { // rank 1 may exit before this rank has left the barrier
			err = c.Barrier(ctx)
		}
		if !errors.Is(err, tutti.ErrRankLost) {
			return fmt.Errorf("nobody is lost: %w", err)
		}
		if c, _, err = c.Shrink(ctx); err != nil {
			return err
		}
		for {
			if _, err := os.Stat(os.Getenv("TUTTI_TEST_GATE")); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		return errors.Join(c.Barrier(ctx), c.Close())
	}
}

// awaitAdmission waits to be admitted.
func awaitAdmission(ctx context.Context) error {
	fmt.Println("waits")
	_, err := tutti.Join(ctx, tutti.Config{})
	return err
}

// failAtOnce fails at once.
func failAtOnce(context.Context) error {
	os.Exit(4)
	return nil
}
