package main

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tutti-go/tutti/internal/proctest"
	"github.com/tutti-go/tutti/store"
)

// TestRefused has processes that do not belong to a job try to join it. Each is refused
// with one clear line on its side and one on the job's, and the job continues.
func TestRefused(t *testing.T) {
	const secret = "0123456789abcdef"
	addr, gate := proctest.FreeAddr(t), filepath.Join(t.TempDir(), "gate")
	j := start(t, "besieged", []string{"TUTTI_SECRET=" + secret, "TUTTI_TEST_GATE=" + gate}, "-n", "2", "-addr", addr)
	j.out.Await(t, "ready", 2)
	// A rank with its place in the environment, as under a launcher.
	rank := func(env ...string) func(t *testing.T) string {
		return func(t *testing.T) string {
			return runRefused(t, append([]string{
				"TUTTI_TEST_ACT=hello", "TUTTI_RANK=1", "TUTTI_SIZE=2", "TUTTI_ATTEMPT=0", "TUTTI_STORE=" + addr, "TUTTI_SECRET=" + secret,
			}, env...))
		}
	}
	// Another launcher.
	launcher := func(secret string, flags ...string) func(t *testing.T) string {
		return func(t *testing.T) string {
			return runRefused(t, []string{"TUTTI_TEST_ACT=hello", "TUTTI_SECRET=" + secret}, append(append([]string{"run"}, flags...), "--", "true")...)
		}
	}
	for _, c := range []struct {
		name      string
		offend    func(t *testing.T) string
		says, job string // printed by the refused process, and by the job
	}{
		{"wrong secret", rank("TUTTI_SECRET=something else than that"), "the secrets differ", "the secrets differ"},
		{"no secret", rank("TUTTI_SECRET="), "no secret", ""}, // it sends nothing, as a process does that only looks whether the store listens
		{"plain client", plainClient(addr), "wants the job's secret first", "refused a connection"},
		{"garbage", garbage(addr), "", "refused a connection"},
		{"taken rank", rank(), "rank 1 is already in the job: process ", "refused a rank"},
		{"wrong size", rank("TUTTI_SIZE=3"), "it was started for a job of 3 ranks, this job has 2", "refused a rank"},
		// The first job owns the port and does not see the attempt to use it.
		{"second job", launcher(secret, "-n", "2", "-addr", addr), "address already in use", ""},
		{"host of a second job", launcher("the secret of the other", "-nodes", "2", "-node", "1", "-addr", addr), "the secrets differ", "the secrets differ"},
		{"host too many", launcher(secret, "-nodes", "2", "-node", "1", "-addr", addr), "it was started with --nodes 2, this job with --nodes 1", "refused a host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := countRefusals(j)
			said := c.offend(t)
			if !strings.Contains(said, c.says) || strings.Count(strings.TrimSpace(said), "\n") > 0 {
				t.Errorf("the offender says %q; want one line with %q", said, c.says)
			}
			want := before
			if c.job != "" {
				want++
			}
			for end := time.Now().Add(deadline); countRefusals(j) < want && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			lines := strings.Split(strings.TrimSpace(j.out.String()), "\n")
			if last := lines[len(lines)-1]; countRefusals(j) != want || !strings.Contains(last, c.job) {
				t.Errorf("the job says %d lines more, the last is %q; want %q", countRefusals(j)-before, last, c.job)
			}
			t.Logf("offender: %s\njob: %s", said, lines[len(lines)-1])
		})
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := j.wait(t); code != 0 || strings.Count(j.out.String(), "undisturbed") != 2 {
		t.Errorf("the job was disturbed, code %d:\n%s", code, &j.out)
	}
	j.checkNoProcesses(t)
}

// countRefusals counts the job's lines about refused processes.
func countRefusals(j *job) int { return strings.Count(j.out.String(), "refused a ") }

// runRefused runs this binary, which must fail, and returns its output.
func runRefused(t *testing.T, env []string, args ...string) string {
	t.Helper()
	self := proctest.Self(t)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), env...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("it was admitted: %s", out)
	}
	return string(out)
}

func plainClient(addr string) func(t *testing.T) string {
	return func(t *testing.T) string {
		c, err := store.Dial(t.Context(), addr, store.Config{Plain: true})
		if err == nil {
			c.Close()
			t.Fatal("it was admitted")
		}
		return err.Error()
	}
}

// garbage speaks another protocol. The store can only close its connection.
func garbage(addr string) func(t *testing.T) string {
	return func(t *testing.T) string {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: here\r\n\r\n" + strings.Repeat("x", 200))); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(deadline))
		said, err := io.ReadAll(io.LimitReader(c, 1<<10))
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Error("it is not hung up on")
		}
		return string(said)
	}
}
