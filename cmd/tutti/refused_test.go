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

// TestRefused lets everybody who is not wanted come to a job that is at work.
// Each is refused with one clear line on its side and one on the job's, and the
// job goes on.
func TestRefused(t *testing.T) {
	const secret = "0123456789abcdef"
	addr, gate := proctest.FreeAddr(t), filepath.Join(t.TempDir(), "gate")
	j := start(t, "besieged", []string{"TUTTI_SECRET=" + secret, "TUTTI_TEST_GATE=" + gate}, "-n", "2", "-addr", addr)
	j.out.Await(t, "ready", 2)
	// A rank that finds its place in the environment, as under a launcher.
	rank := func(env ...string) func(t *testing.T) string {
		return func(t *testing.T) string {
			return offender(t, append([]string{
				"TUTTI_TEST_ACT=hello", "TUTTI_RANK=1", "TUTTI_SIZE=2", "TUTTI_EPOCH=0", "TUTTI_STORE=" + addr, "TUTTI_SECRET=" + secret,
			}, env...))
		}
	}
	// Another launcher.
	launcher := func(secret string, flags ...string) func(t *testing.T) string {
		return func(t *testing.T) string {
			return offender(t, []string{"TUTTI_TEST_ACT=hello", "TUTTI_SECRET=" + secret}, append(append([]string{"run"}, flags...), "--", "true")...)
		}
	}
	for _, c := range []struct {
		name      string
		offend    func(t *testing.T) string
		says, job string // on the offender's side, and on the job's
	}{
		{"wrong secret", rank("TUTTI_SECRET=something else than that"), "the secrets differ", "the secrets differ"},
		{"no secret", rank("TUTTI_SECRET="), "no secret", "refused a connection"},
		{"plain client", plainClient(addr), "wants the job's secret first", "refused a connection"},
		{"garbage", garbage(addr), "", "refused a connection"},
		{"taken rank", rank(), "rank 1 is here already: process ", "refused a rank"},
		{"wrong size", rank("TUTTI_SIZE=3"), "it believes in 3 ranks, this job has 2", "refused a rank"},
		// The port is the first job's, which cannot see that another asks for it.
		{"second job", launcher(secret, "-n", "2", "-addr", addr), "address already in use", ""},
		{"host of a second job", launcher("the secret of the other", "-nodes", "2", "-node", "1", "-addr", addr), "the secrets differ", "the secrets differ"},
		{"host too many", launcher(secret, "-nodes", "2", "-node", "1", "-addr", addr), "it believes in 2 hosts, this job has 1", "refused a host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := refusals(j)
			said := c.offend(t)
			if !strings.Contains(said, c.says) || strings.Count(strings.TrimSpace(said), "\n") > 0 {
				t.Errorf("the offender says %q; want one line with %q", said, c.says)
			}
			want := before
			if c.job != "" {
				want++
			}
			for end := time.Now().Add(deadline); refusals(j) < want && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			lines := strings.Split(strings.TrimSpace(j.out.String()), "\n")
			if last := lines[len(lines)-1]; refusals(j) != want || !strings.Contains(last, c.job) {
				t.Errorf("the job says %d lines more, the last is %q; want %q", refusals(j)-before, last, c.job)
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
	j.nothingLeft(t)
}

// refusals counts the job's lines about those that it has refused.
func refusals(j *job) int { return strings.Count(j.out.String(), "refused a ") }

// offender runs this binary again, which must fail, and returns what it says.
func offender(t *testing.T, env []string, args ...string) string {
	t.Helper()
	self := proctest.Self(t)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), env...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("it was let in: %s", out)
	}
	return string(out)
}

func plainClient(addr string) func(t *testing.T) string {
	return func(t *testing.T) string {
		c, err := store.Dial(t.Context(), addr, store.Config{Plain: true})
		if err == nil {
			c.Close()
			t.Fatal("it was let in")
		}
		return err.Error()
	}
}

// garbage speaks another protocol, and can only be hung up on.
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
