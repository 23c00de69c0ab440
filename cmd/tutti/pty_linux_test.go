package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/internal/proctest"
)

// pty opens a pseudo-terminal: the screen, and the file that programs write to. It skips the test
// where there is none. The test's cleanup closes both.
func pty(t *testing.T) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here:", err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip(err)
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { tty.Close() })
	return screen, tty
}

// inTerminal runs tutti in a terminal and returns the text that is shown there.
func inTerminal(t *testing.T, env []string, args ...string) (shown string, code int) {
	t.Helper()
	screen, tty := pty(t)
	cmd := commandOf(t, append([]string{"TERM=xterm"}, env...), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	text, _ := io.ReadAll(screen) // fails with EIO when no process has the terminal open
	_ = cmd.Wait()
	return string(text), cmd.ProcessState.ExitCode()
}

// TestBenchInTerminal checks that tutti bench shows its progress in a terminal, and erases it.
func TestBenchInTerminal(t *testing.T) {
	shown, code := inTerminal(t, nil, append([]string{"bench", "-n", "2", "--op", "allreduce,barrier", "-b", "1K", "-e", "1K"}, fewIters...)...)
	for _, want := range []string{"[", "] 1/2 allreduce 1K float32 sum", "] 2/2 barrier", "\r\x1b[K", "allreduce          1K", "ok: 2 points"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not shown", want)
		}
	}
	// The final text, after the progress is erased, has no control characters.
	for line := range strings.Lines(shown) {
		rest := line[strings.LastIndex(line, "\x1b[K")+1:]
		rest = strings.TrimPrefix(rest, "[K")
		if strings.ContainsAny(strings.TrimRight(rest, "\r\n"), "\r\x1b") {
			t.Errorf("%q", line)
		}
	}
	if code != 0 || t.Failed() {
		t.Errorf("code %d:\n%q", code, shown)
	}
	// A dumb terminal gets no progress.
	if shown, _ := inTerminal(t, []string{"TERM=dumb"}, "bench", "-h"); strings.Contains(shown, "\x1b") {
		t.Errorf("%q", shown)
	}
}

// startInTerminal starts a job in the foreground of a terminal with stty tostop. Text written to
// screen is typed. A goroutine copies the shown text to the job's output; the test's cleanup waits
// for that goroutine and checks that no process remains.
func startInTerminal(t *testing.T, act string, flags ...string) (j *job, screen *os.File) {
	t.Helper()
	screen, tty := pty(t)
	settings, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	settings.Lflag |= unix.TOSTOP
	if err := unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, settings); err != nil {
		t.Fatal(err)
	}
	j = newJob(t, act, nil, append([]string{"-color", "never"}, flags...)...)
	j.cmd.Stdin, j.cmd.Stdout, j.cmd.Stderr = tty, tty, tty
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	j.begin(t)
	tty.Close()
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		_, _ = io.Copy(&j.out, screen) // fails with EIO when no process has the terminal open
	}()
	t.Cleanup(func() {
		j.checkNoProcesses(t)
		<-shown
	})
	return j, screen
}

func typeKeys(t *testing.T, screen *os.File, keys string) {
	t.Helper()
	if _, err := screen.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// TestTerminalTostop runs jobs in a terminal that stops background processes when they
// write to it. They print, are stopped by Ctrl-C, and read what is typed.
func TestTerminalTostop(t *testing.T) {
	t.Run("prints", func(t *testing.T) {
		t.Parallel()
		j, _ := startInTerminal(t, "hello", "-n", "2")
		if code := j.wait(t); code != 0 {
			t.Errorf("code %d", code)
		}
		j.out.Await(t, "[1] sum 1 of 2, attempt 0", 1)
	})
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		j, screen := startInTerminal(t, "gentle", "-n", "2")
		j.out.Await(t, "ready", 2)
		typeKeys(t, screen, "\x03")
		if code := j.wait(t); code != 130 {
			t.Errorf("code %d", code)
		}
		j.out.Await(t, "got interrupt", 2)
		j.out.Await(t, "tutti: stopped by SIGINT", 1)
		if n := strings.Count(j.out.String(), "got interrupt"); n != 2 {
			t.Errorf("the key was passed on %d times to 2 ranks", n)
		}
	})
	t.Run("suspended", func(t *testing.T) {
		t.Parallel()
		j, screen := startInTerminal(t, "gentle", "-n", "2")
		j.out.Await(t, "ready", 2)
		// The session leader's group is orphaned, so that Ctrl-Z does not stop it.
		typeKeys(t, screen, "\x1a")
		proctest.Stop(t, j.cmd.Process.Pid)
		for _, sig := range []syscall.Signal{syscall.SIGCONT, syscall.SIGINT} {
			if err := j.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
		}
		if code := j.wait(t); code != 130 {
			t.Errorf("code %d", code)
		}
		j.out.Await(t, "got interrupt", 2)
	})
	t.Run("typed", func(t *testing.T) {
		t.Parallel()
		j, screen := startInTerminal(t, "stdin", "-n", "2", "-stdin")
		typeKeys(t, screen, "a word\n\x04")
		if code := j.wait(t); code != 0 {
			t.Errorf("code %d", code)
		}
		j.out.Await(t, `[0] read "a word\n"`, 1)
	})
	t.Run("rank", func(t *testing.T) {
		t.Parallel()
		// Ranks have no controlling terminal that could stop them.
		j, _ := startInTerminal(t, "terminal", "-n", "2")
		if code := j.wait(t); code != 0 {
			t.Errorf("code %d", code)
		}
		j.out.Await(t, "/dev/tty: no such device or address", 2)
	})
	t.Run("library", func(t *testing.T) {
		t.Parallel()
		j, screen := startInTerminal(t, "library")
		j.out.Await(t, "[0] ready", 1)
		typeKeys(t, screen, "it\n")
		if code := j.wait(t); code != 0 {
			t.Errorf("code %d", code)
		}
		j.out.Await(t, "[0] got it", 1)
	})
}
