package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// An mps is the CUDA Multi-Process Service, with which processes use the GPU at the same
// time. Without it small operations take milliseconds. It runs in a folder of its own, for
// this program only.
type mps struct {
	wanted  bool
	dir     string
	env     []string // of the processes that use the service; nil: it does not run
	problem string   // why it could not be started or stopped
}

const mpsControl = "nvidia-cuda-mps-control"

func startMPS(ctx context.Context, wanted bool) *mps {
	m := &mps{wanted: wanted}
	m.restart(ctx)
	return m
}

// restart starts the service, unless it runs. If it cannot be started, problem says why, and the
// program continues without it.
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

// mpsStopTimeout bounds the wait for the service to end: it waits for its clients, and one of
// them may hang.
const mpsStopTimeout = 8 * time.Second

// stop ends the service, if it runs, and waits for that for at most mpsStopTimeout. If it does not
// end, problem says why.
func (m *mps) stop() {
	if m.env == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), mpsStopTimeout)
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

// String says whether the service runs.
func (m *mps) String() string {
	switch {
	case m.env != nil:
		return "on"
	case m.wanted:
		return "off, it could not be started: " + m.problem
	}
	return "off"
}
