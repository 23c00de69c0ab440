package launch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tutti-go/tutti/internal/proctest"
)

// TestWholeOutput checks that a line of a megabyte is forwarded unchanged.
func TestWholeOutput(t *testing.T) {
	text := "[0] " + strings.Repeat("0123456789", 100_000) + "\n"
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte(text[4:]), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if r, err := Run(context.Background(), Config{Command: []string{"cat", file}, Stdout: &out}); err != nil || r.Code != 0 {
		t.Fatal(r, err)
	}
	if out.String() != text {
		t.Errorf("%d bytes and %d lines, want %d and 1", out.Len(), strings.Count(out.String(), "\n"), len(text))
	}
}

// TestPromptShown checks that a prompt is shown while the rank waits for the answer. Run is in
// another goroutine; out has a lock of its own.
func TestPromptShown(t *testing.T) {
	answer := filepath.Join(t.TempDir(), "answer")
	if err := syscall.Mkfifo(answer, 0o600); err != nil {
		t.Fatal(err)
	}
	var out proctest.Output
	done := make(chan error, 1)
	go func() {
		_, err := Run(context.Background(), Config{Command: []string{"sh", "-c", `printf "name? "; cat "$0"`, answer}, Stdout: &out})
		done <- err
	}()
	out.Await(t, "[0] name? ", 1)
	if err := os.WriteFile(answer, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || out.String() != "[0] name? x\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestSamePlace compares Writers, including types that do not support ==.
func TestSamePlace(t *testing.T) {
	buf, other := new(bytes.Buffer), new(bytes.Buffer)
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, again, b := open("a"), open("a"), open("b")
	for _, c := range []struct {
		a, b io.Writer
		want bool
	}{
		{buf, buf, true},
		{buf, other, false},
		{a, a, true},
		{a, again, true},
		{a, b, false},
		{a, buf, false},
		{many{buf}, many{buf}, false},
		{boxed{many{buf}}, boxed{many{buf}}, false},
		{boxed{buf}, boxed{buf}, true},
	} {
		if got := samePlace(c.a, c.b); got != c.want {
			t.Errorf("%v and %v: %v", reflect.TypeOf(c.a), reflect.TypeOf(c.b), got)
		}
	}
}

// many does not support ==, and boxed only with some values.
type (
	many  []io.Writer
	boxed struct{ io.Writer }
)

func (m many) Write(p []byte) (int, error) { return m[0].Write(p) }

// TestSameWriter uses one Writer without a lock for both outputs. The sink's turns serialize the
// streams, so that there is no data race, and lines do not mix.
func TestSameWriter(t *testing.T) {
	var out bytes.Buffer
	const ranks, lines = 2, 2000
	r, err := Run(context.Background(), Config{
		Command: []string{"sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i; echo line $i >&2; i=$((i+1)); done", lines)},
		Ranks:   ranks, Stdout: &out, Stderr: &out,
	})
	if err != nil || r.Code != 0 {
		t.Fatal(r, err)
	}
	whole := regexp.MustCompile(`^\[[01]\] line \d+$`)
	n := 0
	for line := range strings.Lines(out.String()) {
		if n++; !whole.MatchString(strings.TrimSuffix(line, "\n")) {
			t.Fatalf("line %d is %q", n, line)
		}
	}
	if n != 2*ranks*lines {
		t.Errorf("%d lines, want %d", n, 2*ranks*lines)
	}
}

// TestLogFull writes a log file to a full device. The job continues and succeeds, the
// other log file is complete, and one message names the incomplete file.
func TestLogFull(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	full := filepath.Join(dir, "rank-0.out")
	if err := os.Symlink("/dev/full", full); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	r, err := Run(context.Background(), Config{
		Command: []string{"sh", "-c", "for i in 1 2 3; do echo out $i; echo err $i >&2; sleep 0.01; done"},
		LogDir:  dir, Stdout: &out, Stderr: &errs,
	})
	if err != nil || r.Code != 0 {
		t.Fatal(r, err)
	}
	text := errs.String()
	for _, want := range []string{"tutti: the log file " + full + " is incomplete: no space left on device; ", "choose another --log-dir"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, text)
		}
	}
	if want := "tutti: incomplete log files: " + full + "\n"; r.String() != want {
		t.Errorf("%q", r)
	}
	if out.String() != "[0] out 1\n[0] out 2\n[0] out 3\n" {
		t.Errorf("%q", &out)
	}
	if log, err := os.ReadFile(filepath.Join(dir, "rank-0.err")); err != nil || string(log) != "err 1\nerr 2\nerr 3\n" {
		t.Errorf("%q, %v", log, err)
	}
}
