package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/tutti-go/tutti/internal/doctor"
)

// probeTime is how long a look at libraries may take.
const probeTime = time.Minute

// probeMark stands before what a probe has found: libraries print, too.
const probeMark = "tutti-probe "

// probe has another process look at something, and reads what it found into to.
// That process may crash or hang; this one does not.
func probe(ctx context.Context, what string, to any) error {
	if said, err := ask(ctx, what, to); !said {
		return err
	}
	return nil // libraries may crash at the very end
}

// ask is probe for what is told more than once: to is the last, and the error is how
// that process has ended.
func ask(ctx context.Context, what string, to any) (said bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self, "probe", what)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	if cmd.Process == nil {
		return false, fmt.Errorf("%w: %w", doctor.ErrNotStarted, err)
	}
	for line := range bytes.Lines(out.Bytes()) {
		if text, ok := bytes.CutPrefix(line, []byte(probeMark)); ok {
			said = json.Unmarshal(text, to) == nil
		}
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return said, fmt.Errorf("the process that looked did not end within %v", probeTime)
	case err == nil && !said:
		return false, errors.New("the process that looked has said nothing")
	case err == nil:
		return true, nil
	}
	return said, fmt.Errorf("the process that looked has died: %w%s", err, lastWords(stderr.String()))
}

// devices asks another process how many GPUs can be used.
func devices(ctx context.Context, nccl bool) (int, error) {
	var g doctor.GPUs
	if err := probe(ctx, "gpu", &g); err != nil {
		return 0, err
	}
	return g.Usable(nccl)
}

// lastWords is the first line of what a process has said at its end.
func lastWords(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if line == "" {
		return ""
	}
	return ": " + line
}

// runProbe is that other process.
func runProbe(_ app, args []string) int {
	var found any
	switch {
	case len(args) == 1 && args[0] == "threads":
		if err := doctor.ProbeThreads(func(n int) error { return tellFound(n) }); err != nil {
			fmt.Fprintln(os.Stderr, "tutti probe:", err)
			return 1
		}
		return 0
	case len(args) == 1 && args[0] == "gpu" && hasGPU:
		found = lookForGPUs()
	case len(args) == 1 && args[0] == "memory":
		found = doctor.ProbeMemory()
	default:
		fmt.Fprintln(os.Stderr, "tutti probe: it is called by tutti itself")
		return 2
	}
	if err := tellFound(found); err != nil {
		fmt.Fprintln(os.Stderr, "tutti probe:", err)
		return 1
	}
	return 0
}

// tellFound prints what a probe has found.
func tellFound(found any) error {
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s%s\n", probeMark, text)
	return err
}
