package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// pty opens a pseudo-terminal: what a person sees, and what a program writes to.
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

// inTerminal runs tutti in a terminal and returns what is shown there.
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
	text, _ := io.ReadAll(screen) // it ends with an error when nobody has the terminal
	_ = cmd.Wait()
	return string(text), cmd.ProcessState.ExitCode()
}

func TestBenchInTerminal(t *testing.T) {
	shown, code := inTerminal(t, nil, append([]string{"bench", "-n", "2", "--op", "allreduce,barrier", "-b", "1K", "-e", "1K"}, quick...)...)
	for _, want := range []string{"[", "] 1/2 allreduce 1K float32 sum", "] 2/2 barrier", "\r\x1b[K", "allreduce          1K", "ok: 2 points"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not shown", want)
		}
	}
	// What is left when the progress is wiped has no control characters.
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
	// A terminal that knows nothing gets no progress.
	if shown, _ := inTerminal(t, []string{"TERM=dumb"}, "bench", "-h"); strings.Contains(shown, "\x1b") {
		t.Errorf("%q", shown)
	}
}
