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

// probeTimeout bounds one probe.
const probeTimeout = time.Minute

// resultPrefix marks the result line of a probe, because libraries print, too.
const resultPrefix = "tutti-probe "

// probe examines something in another process and decodes the result into to. The other
// process may crash or hang without affecting this one.
func probe(ctx context.Context, what string, to any) error {
	if answered, err := runProbeProcess(ctx, what, to); !answered {
		return err
	}
	return nil // the libraries may crash at exit, after the result
}

// runProbeProcess runs a probe process that may print several results. It decodes the last one into
// to. The error describes how the process ended, even if it has answered. The process is killed
// when ctx ends, or after probeTimeout.
func runProbeProcess(ctx context.Context, what string, to any) (answered bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
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
		if text, ok := bytes.CutPrefix(line, []byte(resultPrefix)); ok {
			answered = json.Unmarshal(text, to) == nil
		}
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return answered, fmt.Errorf("the probe process did not exit within %v", probeTimeout)
	case err == nil && !answered:
		return false, errors.New("the probe process printed no result")
	case err == nil:
		return true, nil
	}
	return answered, fmt.Errorf("the probe process failed: %w%s", err, firstLine(stderr.String()))
}

// countGPUs asks another process for the number of usable GPUs.
func countGPUs(ctx context.Context, nccl bool) (int, error) {
	var g doctor.GPUs
	if err := probe(ctx, "gpu", &g); err != nil {
		return 0, err
	}
	return g.Usable(nccl)
}

// firstLine returns the first line of a process's error output, after a colon.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if line == "" {
		return ""
	}
	return ": " + line
}

// runProbe is the command of the probe process. It prints the result, and returns the exit code. A
// probe may crash the process.
func runProbe(_ app, args []string) int {
	var found any
	switch {
	case len(args) == 1 && args[0] == "threads":
		if err := doctor.ProbeThreads(func(n int) error { return printFound(n) }); err != nil {
			fmt.Fprintln(os.Stderr, "tutti probe:", err)
			return 1
		}
		return 0
	case len(args) == 1 && args[0] == "gpu" && hasGPU:
		found = probeGPUs()
	case len(args) == 1 && args[0] == "memory":
		found = doctor.ProbeMemory()
	default:
		fmt.Fprintln(os.Stderr, "tutti probe: this command is for tutti's own use")
		return 2
	}
	if err := printFound(found); err != nil {
		fmt.Fprintln(os.Stderr, "tutti probe:", err)
		return 1
	}
	return 0
}

// printFound prints the result of a probe.
func printFound(found any) error {
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s%s\n", resultPrefix, text)
	return err
}
