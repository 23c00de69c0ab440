package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/tutti-go/tutti/cuda"
	"github.com/tutti-go/tutti/nccl"
)

// A result is the outcome of one test binary.
type result struct {
	passed, skipped, failed int
	took                    time.Duration
	tail                    string // the failed tests' names, and the end of the output
}

// test runs a test binary for at most 9 minutes, and counts its tests. If the binary cannot be run,
// crashes or is cancelled, at least one test counts as failed.
func test(ctx context.Context, binary string, env []string, args ...string) result {
	ctx, cancel := context.WithTimeout(ctx, 9*time.Minute)
	defer cancel()
	begin := time.Now()
	cmd := exec.CommandContext(ctx, binary, append([]string{"-test.v", "-test.timeout=8m"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	r := count(out.String())
	r.took = time.Since(begin)
	if err != nil {
		r.failed = max(r.failed, 1)
		r.tail = fmt.Sprintf("%s\n%v", r.tail, err)
	}
	return r
}

// runSelf runs this program with other arguments.
func runSelf(ctx context.Context, env []string, args ...string) (took time.Duration, out string, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, "", err
	}
	begin := time.Now()
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), env...)
	text, err := cmd.CombinedOutput()
	return time.Since(begin), string(text), err
}

// count counts the tests in the output of "go test -v".
func count(out string) result {
	var r result
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "--- PASS"):
			r.passed++
		case strings.HasPrefix(line, "--- SKIP"):
			r.skipped++
		case strings.HasPrefix(line, "--- FAIL"):
			r.failed++
			r.tail += line + "\n"
		}
	}
	r.tail += strings.TrimSpace(out[max(0, len(out)-4000):])
	return r
}

// describeGPU returns the names of the GPU and the libraries, from a process of its own.
func describeGPU(ctx context.Context, env []string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, self, "about")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	var e *exec.ExitError
	if errors.As(err, &e) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(e.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}

// printGPU prints the GPU and the libraries, or returns why they cannot be used. It runs in a
// process of its own, because the main process loads neither library.
func printGPU() error {
	d, err := cuda.Open(0, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	name, err := d.Name()
	if err != nil {
		return err
	}
	version, _, err := cuda.Version()
	if err != nil {
		return err
	}
	lib, err := nccl.Load("")
	if err != nil {
		return err
	}
	fmt.Printf("%s, driver for CUDA %d.%d, NCCL %v (%s)\n", name, version/1000, version%1000/10, lib.Version(), lib.Path())
	return nil
}
