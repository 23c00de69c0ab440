package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child returns a command in a process group of its own, so that Ctrl-C at the
// terminal reaches only this process, which then ends the group. Launchers forward
// SIGTERM to ranks that they have put into other groups.
func child(ctx context.Context, env []string, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = 5 * time.Second
	return c
}

// runAll runs commands concurrently, one goroutine for each, and returns the standard output of
// each when all have exited. The first command that fails ends the others through stop, which must
// cancel their context. The error is that of this command: once guards first until running.Wait
// returns.
func runAll(stop context.CancelCauseFunc, all []*exec.Cmd) ([]string, error) {
	outs := make([]bytes.Buffer, len(all))
	var running sync.WaitGroup
	var once sync.Once
	var first error
	for i, c := range all {
		var complaint bytes.Buffer
		c.Stdout, c.Stderr = &outs[i], &complaint
		running.Go(func() {
			if err := c.Run(); err != nil {
				once.Do(func() {
					first = fmt.Errorf("process %d of %d: %w: %s", i, len(all), err, tail(complaint.String()))
					stop(first)
				})
			}
		})
	}
	running.Wait()
	texts := make([]string, len(all))
	for i := range outs {
		texts[i] = outs[i].String()
	}
	return texts, first
}

// tail returns the end of an error text, where its reason is.
func tail(s string) string {
	const most = 600
	s = strings.TrimSpace(s)
	if len(s) > most {
		s = "..." + s[len(s)-most:]
	}
	return s
}

// samples reads the lines that a driver's rank 0 prints; see package peers.
func samples(text string) (all []sample, about []string) {
	for line := range strings.Lines(text) {
		if s, ok := strings.CutPrefix(line, "I "); ok {
			about = append(about, strings.Join(strings.Fields(s), " "))
			continue
		}
		var s sample
		if _, err := fmt.Sscanf(line, "R %d %d %d %g %g %g %g %g", &s.bytes, &s.rank, &s.iters,
			&s.p50, &s.p99, &s.p999, &s.min, &s.perSecond); err == nil {
			all = append(all, s)
		}
	}
	return all, about
}

// String returns the line that samples reads.
func (s sample) String() string {
	return fmt.Sprintf("R %d %d %d %.5f %.5f %.5f %.5f %.1f",
		s.bytes, s.rank, s.iters, s.p50, s.p99, s.p999, s.min, s.perSecond)
}
