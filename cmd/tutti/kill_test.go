package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/internal/proctest"
)

// TestIgnoredSignals stops a job whose ranks ignore every signal: they are killed after
// the grace time, or by a second signal.
func TestIgnoredSignals(t *testing.T) {
	skipUnlessLinux(t)
	for name, c := range map[string]struct {
		grace   string
		signals int
	}{"grace": {"200ms", 1}, "second signal": {"1h", 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := start(t, "stays", nil, "-n", "2", "-grace", c.grace)
			j.out.Await(t, "ready", 2)
			for i := range c.signals {
				if i > 0 { // the first has arrived; with a short grace time they may be killed before they print
					j.out.Await(t, "stays all the same", 2)
				}
				if err := j.cmd.Process.Signal(syscall.SIGINT); err != nil {
					t.Fatal(err)
				}
			}
			if code := j.wait(t); code != 130 {
				t.Errorf("code %d", code)
			}
			j.checkOutput(t, "tutti: stopped by SIGINT\n", "tutti: rank 0 ended by tutti: killed by SIGKILL\n", "tutti: rank 1 ended by tutti: killed by SIGKILL\n")
			j.checkNoProcesses(t)
		})
	}
}

// ignoreSignals catches signals and keeps running.
func ignoreSignals(bool) error {
	s := make(chan os.Signal, 1)
	signal.Notify(s, syscall.SIGTERM, syscall.SIGINT)
	fmt.Println("ready")
	for range s {
		fmt.Println("stays all the same")
	}
	return nil
}

// TestWrapped has ranks that are grandchildren of the launcher, as with `-- go run x`.
// They are ended like direct children, including their own children.
func TestWrapped(t *testing.T) {
	skipUnlessLinux(t)
	for name, c := range map[string]struct {
		act  string
		sig  syscall.Signal // sent to the launcher; 0: none
		code int
	}{
		"fails":      {"leaving", 0, 3},
		"killed":     {"killed", 0, 137},
		"terminated": {"waiting", syscall.SIGTERM, 143},
		"launcher":   {"waiting", syscall.SIGKILL, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, c.act, nil, "-n", "2", "-grace", "500ms")
			last := len(j.cmd.Args) - 1
			j.cmd.Args = append(j.cmd.Args[:last], "sh", "-c", `"$0"; exit $?`, j.cmd.Args[last])
			j.begin(t)
			if c.sig != 0 {
				j.out.Await(t, "ready", 2)
				if n := len(j.processes()); n != 9 { // three launchers, two shells, two ranks, two orphans
					t.Errorf("%d processes before the end", n)
				}
				if err := j.cmd.Process.Signal(c.sig); err != nil {
					t.Fatal(err)
				}
			}
			if code := j.wait(t); code != c.code {
				t.Errorf("code %d, want %d:\n%s", code, c.code, &j.out)
			}
			if c.sig == 0 {
				j.checkOutput(t, "tutti: rank 1 failed first: exit code ")
			}
			j.awaitNoProcesses()
			j.checkNoProcesses(t)
		})
	}
}

// awaitNoProcesses waits for the exit of processes that another process ends.
func (j *job) awaitNoProcesses() {
	for end := time.Now().Add(deadline); len(j.processes()) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// TestTwoKilled kills two launcher processes at once. The third ends all processes,
// including those in other sessions.
func TestTwoKilled(t *testing.T) {
	skipUnlessLinux(t)
	for name, which := range map[string][]int{
		"first and watchdog":  {first, watchdogProcess},
		"first and leader":    {first, leader},
		"watchdog and leader": {watchdogProcess, leader},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := start(t, "waiting", nil, "-n", "2")
			j.out.Await(t, "ready", 2)
			j.killLaunchers(t, which...)
			j.awaitNoProcesses()
			j.checkNoProcesses(t)
		})
	}
}

// TestAllKilled kills all launcher processes at once: the kernel kills their ranks.
func TestAllKilled(t *testing.T) {
	skipUnlessLinux(t)
	j := start(t, "stays", nil, "-n", "2")
	j.out.Await(t, "ready", 2)
	j.killLaunchers(t, first, watchdogProcess, leader)
	j.awaitNoProcesses()
	j.checkNoProcesses(t)
	if strings.Contains(j.out.String(), "tutti:") {
		t.Errorf("a launcher has done something:\n%s", &j.out)
	}
}

// killLaunchers kills processes of the launcher at once. All three are stopped first, so that
// none of them reacts to the end of the first one before the last one has been killed.
func (j *job) killLaunchers(t *testing.T, which ...int) {
	t.Helper()
	pids := j.launchers(t)
	for _, pid := range pids {
		proctest.Stop(t, pid)
	}
	for n, i := range which {
		err := syscall.Kill(pids[i], syscall.SIGKILL)
		// The kernel continues stopped processes of an orphaned process group: one may have exited.
		if err != nil && !(n > 0 && errors.Is(err, syscall.ESRCH)) {
			t.Fatal(err)
		}
	}
	for i, pid := range pids {
		if !slices.Contains(which, i) {
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
	}
	j.wait(t)
}

// TestWatchdogApart checks that the watchdog shares no name, command line, process
// group or session with the other launcher processes, by which all could be killed at
// once.
func TestWatchdogApart(t *testing.T) {
	skipUnlessLinux(t)
	j := start(t, "waiting", nil, "-n", "1")
	j.out.Await(t, "ready", 1)
	pids := j.launchers(t)
	read := func(i int, name string) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pids[i], name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if name, line := read(watchdogProcess, "comm"), read(watchdogProcess, "cmdline"); name != "rank-watchdog\n" || line != "rank-watchdog\x00" {
		t.Errorf("its name is %q, its command line %q", name, line)
	}
	for _, i := range []int{first, leader} {
		if strings.Contains(read(i, "comm")+read(i, "cmdline"), "watchdog") {
			t.Errorf("process %d is called like it: %q", i, read(i, "cmdline"))
		}
		for what, f := range map[string]func(int) (int, error){"group": syscall.Getpgid, "session": unix.Getsid} {
			its, err1 := f(pids[watchdogProcess])
			other, err2 := f(pids[i])
			if its == other || err1 != nil || err2 != nil {
				t.Errorf("process %d is in its %s, %d: %v, %v", i, what, its, err1, err2)
			}
		}
	}
	if err := j.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := j.wait(t); code != 143 {
		t.Errorf("code %d", code)
	}
	j.checkNoProcesses(t)
}
