package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/internal/proctest"
)

// TestStubborn stops a job whose ranks take every signal and stay: they are
// killed after the grace period, or by a second signal.
func TestStubborn(t *testing.T) {
	onlyLinux(t)
	for name, c := range map[string]struct {
		grace   string
		signals int
	}{"grace": {"200ms", 1}, "second signal": {"1h", 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := start(t, "stays", nil, "-n", "2", "-grace", c.grace)
			j.out.Await(t, "ready", 2)
			for i := range c.signals {
				if i > 0 { // the first one has come; with a short grace they may be killed before they say so
					j.out.Await(t, "stays all the same", 2)
				}
				if err := j.cmd.Process.Signal(syscall.SIGINT); err != nil {
					t.Fatal(err)
				}
			}
			if code := j.wait(t); code != 130 {
				t.Errorf("code %d", code)
			}
			j.says(t, "tutti: stopped by SIGINT\n", "tutti: rank 0 ended by tutti: killed by SIGKILL\n", "tutti: rank 1 ended by tutti: killed by SIGKILL\n")
			j.nothingLeft(t)
		})
	}
}

// stays catches what asks it to end, and does not.
func stays(bool) error {
	s := make(chan os.Signal, 1)
	signal.Notify(s, syscall.SIGTERM, syscall.SIGINT)
	fmt.Println("ready")
	for range s {
		fmt.Println("stays all the same")
	}
	return nil
}

// TestWrapped has ranks that are grandchildren of the launcher, as they are with
// `-- go run x`. They end as ranks do, with what they have left behind.
func TestWrapped(t *testing.T) {
	onlyLinux(t)
	for name, c := range map[string]struct {
		act  string
		sig  syscall.Signal // to the launcher; 0: none
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
				if n := len(j.left()); n != 9 { // three launchers, two shells, two ranks, two leftovers
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
				j.says(t, "tutti: rank 1 failed first: exit code ")
			}
			j.awaitNobody()
			j.nothingLeft(t)
		})
	}
}

// awaitNobody waits for the end of processes that another one ends.
func (j *job) awaitNobody() {
	for end := time.Now().Add(deadline); len(j.left()) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// TestTwoKilled kills two launcher processes before either can do anything about
// it. The third ends everything, also what has a session of its own.
func TestTwoKilled(t *testing.T) {
	onlyLinux(t)
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
			j.awaitNobody()
			j.nothingLeft(t)
		})
	}
}

// TestAllKilled kills all launcher processes before any can do anything about it:
// the system ends their ranks.
func TestAllKilled(t *testing.T) {
	onlyLinux(t)
	j := start(t, "stays", nil, "-n", "2")
	j.out.Await(t, "ready", 2)
	j.killLaunchers(t, first, watchdogProcess, leader)
	j.awaitNobody()
	j.nothingLeft(t)
	if strings.Contains(j.out.String(), "tutti:") {
		t.Errorf("a launcher has done something:\n%s", &j.out)
	}
}

// killLaunchers kills processes of the launcher as if at one moment.
func (j *job) killLaunchers(t *testing.T, which ...int) {
	t.Helper()
	pids := j.launchers(t)
	for _, i := range which {
		proctest.Stop(t, pids[i])
	}
	for _, i := range which {
		if err := syscall.Kill(pids[i], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	j.wait(t)
}

// TestWatchdogApart looks whether the watchdog has anything in common with the
// other launcher processes by which all of them could be killed at once: name,
// command line, process group, session.
func TestWatchdogApart(t *testing.T) {
	onlyLinux(t)
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
	j.nothingLeft(t)
}
