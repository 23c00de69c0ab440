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

// elastic starts tutti run with flags and examples/elastic, which goes on until
// it is asked to end.
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

// process returns which process was the first, or the newest, to say that it is a
// rank of so many.
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

// formed waits until all ranks have said that they are so many: one that is not
// so far when another dies says that never.
func (j *job) formed(t *testing.T, size int) {
	t.Helper()
	j.out.Await(t, fmt.Sprintf(" of %d from step", size), size)
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// exactSums has so many ranks say the right sum.
func (j *job) exactSums(t *testing.T, want int) {
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

func (j *job) says(t *testing.T, list ...string) {
	t.Helper()
	for _, s := range list {
		if !strings.Contains(j.out.String(), s) {
			t.Errorf("%q is missing:\n%s", s, &j.out)
		}
	}
}

// TestElastic runs examples/elastic, and kills its ranks.
func TestElastic(t *testing.T) {
	onlyLinux(t)
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

// elasticReplaced kills rank 0, and then another, of a job that goes on: both are
// replaced, the sum is exact, and nothing is left.
func elasticReplaced(t *testing.T, program string) {
	j := elastic(t, program, nil, "-elastic", "2:3")
	j.formed(t, 3)
	kill(t, j.process(t, 0, 3, false))
	j.out.Await(t, " of 3 from step", 6) // all of the first Comm, and of one with the replacement
	kill(t, j.process(t, 0, 3, true))
	j.out.Await(t, " of 3 from step", 9)
	if err := j.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if code := j.wait(t); code != 0 {
		t.Errorf("code %d", code)
	}
	j.exactSums(t, 3)
	j.says(t, "tutti: rank 0 is lost: killed by SIGKILL", "it is replaced (1 of 9)", "tutti: rank 0 was lost after ",
		"; replacement 1 came after ", "it is replaced (2 of 9)", "and was let in as rank 2 of 3")
	if strings.Contains(j.out.String(), "failed first") {
		t.Errorf("it says that it failed:\n%s", &j.out)
	}
	j.nothingLeft(t)
}

// elasticTooFew loses more ranks than it may: it ends with the code of the first
// of them.
func elasticTooFew(t *testing.T, program string) {
	j := elastic(t, program, nil, "-elastic", "2:3", "-replacements", "0", "-grace", "500ms")
	j.formed(t, 3)
	second := j.process(t, 2, 3, false)
	kill(t, j.process(t, 1, 3, false))
	j.process(t, 1, 2, false)
	if err := syscall.Kill(second, syscall.SIGABRT); err != nil { // a Go program's code is then 2
		t.Fatal(err)
	}
	if code := j.wait(t); code != 137 {
		t.Errorf("code %d", code)
	}
	j.says(t, "it is not replaced: 0 replacements were all", "1 of 3 ranks are left, and 2 are needed",
		"rank 1 failed first: killed by SIGKILL", "rank 2 was lost after", "nobody has taken its place", "tutti: rank 0 ", "; ended by tutti")
	j.nothingLeft(t)
}

// elasticWrapped kills what has started a rank: the rank itself, which is left
// behind, ends too.
func elasticWrapped(t *testing.T, program string) {
	shell := []string{"sh", "-c", `trap : USR1; "$0" "$@"; exit $?`, program}
	j := elasticCommand(t, shell, nil, "-elastic", "2:3")
	j.formed(t, 3)
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
	if pids := j.left(); slices.Contains(pids, rank) || slices.Contains(pids, parent) || len(pids) != 9 {
		t.Errorf("%v run; of rank 1, %d is left of %d", pids, rank, parent)
	}
	if err := j.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if code := j.wait(t); code != 0 {
		t.Errorf("code %d", code)
	}
	j.exactSums(t, 3)
	j.nothingLeft(t)
}

// elasticHosts is two hosts, which are one, each with two ranks. One host
// loses its first rank, and the other is none the wiser.
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
		j.exactSums(t, 2)
		if lost := strings.Contains(j.out.String(), "rank 2 was lost"); lost != (i == 1) {
			t.Errorf("node %d:\n%s", i, &j.out)
		}
		j.nothingLeft(t)
	}
}

// elasticOnlyRank kills the only rank of a host, twice: its launcher has no process then,
// the second time for a second, and starts another.
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
		j.exactSums(t, 1)
		j.nothingLeft(t)
	}
	jobs[1].says(t, "tutti: rank 1 is lost: killed by SIGKILL", "it is replaced in 1s (2 of 3)", "tutti: replacement 1 of rank 1 was lost after ", "; replacement 2 came after ")
}

// TestElasticEnds has replacements that die before they are let in, that are
// never let in, and a rank that is lost before all have joined.
func TestElasticEnds(t *testing.T) {
	onlyLinux(t)
	for act, c := range map[string]struct {
		code  int
		flags []string
		await string
		says  []string
	}{
		"unwelcome": {0, nil, "waits", []string{"replacement 1 came after", ", and was not let in"}},
		"hopeless": {0, []string{"-replacements", "2"}, "it is not replaced: 2 replacements were all", []string{
			"replacement 1 of rank 1 is lost: exit code 4", "it is replaced in 1s (2 of 2)", "replacement 2 of rank 1 was lost", "nobody has taken its place",
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
			j.says(t, c.says...)
			j.nothingLeft(t)
		})
	}
}

// TestElasticStopped has a rank stop, and the others go on without it: it is
// killed, and its replacement is let in.
func TestElasticStopped(t *testing.T) {
	onlyLinux(t)
	t.Parallel()
	j := start(t, "outlived", nil, "-elastic", "2:3", "-grace", "100ms")
	if code := j.wait(t); code != 0 {
		t.Errorf("code %d", code)
	}
	j.says(t, "tutti: rank 1 does not end, and the others have gone on without it; it is killed\n",
		"tutti: rank 1 was lost after ", "killed by SIGKILL; replacement 1 came after ", "and was let in as rank 2 of 3\n")
	j.nothingLeft(t)
}

// outlived has rank 1 stop when all have joined, and the others shrink, and grow
// again.
func outlived(one bool) error {
	ctx := context.Background()
	c, err := tutti.Join(ctx, tutti.Config{Patience: 4 * time.Second})
	if err != nil {
		return err
	}
	if os.Getenv("TUTTI_LATE") == "" {
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if one {
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

// survive has rank 1 die when all have joined, and the others go on, and let
// nobody in, until the test says so. What late processes do is said.
func survive(late func(context.Context) error) func(one bool) error {
	return func(one bool) error {
		ctx := context.Background()
		if os.Getenv("TUTTI_LATE") != "" {
			return late(ctx)
		}
		c, err := tutti.Join(ctx, tutti.Config{})
		if err != nil {
			return err
		}
		err = c.Barrier(ctx)
		if one && err == nil {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		if err == nil { // rank 1 may be gone before this one has left the first
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

// unwelcome waits to be let in.
func unwelcome(ctx context.Context) error {
	fmt.Println("waits")
	_, err := tutti.Join(ctx, tutti.Config{})
	return err
}

// hopeless fails at once.
func hopeless(context.Context) error {
	os.Exit(4)
	return nil
}
