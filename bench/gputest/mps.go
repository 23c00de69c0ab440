package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// mps is the service by which processes share the GPU at the same time, without
// which small operations take milliseconds. It is started for this program only,
// in a folder of its own.
type mps struct {
	wanted  bool
	dir     string
	env     []string // for those who are to use it; none if it does not run
	problem string
}

const mpsControl = "nvidia-cuda-mps-control"

func startMPS(ctx context.Context, wanted bool) *mps {
	m := &mps{wanted: wanted}
	m.restart(ctx)
	return m
}

// restart starts the service, unless it runs.
func (m *mps) restart(ctx context.Context) {
	if !m.wanted || m.env != nil {
		return
	}
	dir, err := os.MkdirTemp("", "mps")
	if err != nil {
		m.problem = err.Error()
		return
	}
	env := []string{"CUDA_MPS_PIPE_DIRECTORY=" + dir, "CUDA_MPS_LOG_DIRECTORY=" + dir}
	cmd := exec.CommandContext(ctx, mpsControl, "-d")
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		m.problem = strings.TrimSpace(fmt.Sprintf("%v %s", err, out))
		_ = os.RemoveAll(dir)
		return
	}
	m.dir, m.env = dir, env
}

// mpsPatience is how long the service may take to end: it waits for those who use
// it, and one of them may hang.
const mpsPatience = 8 * time.Second

// stop ends the service.
func (m *mps) stop() {
	if m.env == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), mpsPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, mpsControl)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), m.env...)
	cmd.Stdin = strings.NewReader("quit\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		m.problem = strings.TrimSpace(fmt.Sprintf("stopping: %v %s", err, out))
	}
	_ = os.RemoveAll(m.dir)
	m.env = nil
}

// String says whether it runs.
func (m *mps) String() string {
	switch {
	case m.env != nil:
		return "on"
	case m.wanted:
		return "off, it could not be started: " + m.problem
	}
	return "off"
}
