package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-go/tutti/bench/peers"
)

// A job is the ranks of one driver, which answer one question at a time.
type job struct {
	name  string
	ranks []*process
}

// A process is one rank.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string
	stderr *strings.Builder
}

// patience is how long an answer may take.
const patience = 3 * time.Minute

// startJob starts a driver's ranks and waits until they have met.
func startJob(ctx context.Context, name string, ranks int, env []string, driver ...string) (*job, error) {
	j := &job{name: name}
	for r := range ranks {
		p, err := startProcess(ctx, env, r, ranks, driver)
		if err != nil {
			j.stop()
			return nil, err
		}
		j.ranks = append(j.ranks, p)
	}
	id, err := j.ranks[0].line()
	for _, p := range j.ranks[1:] {
		if err == nil {
			_, err = fmt.Fprintln(p.in, id)
		}
	}
	for _, p := range j.ranks {
		var text string
		if err == nil {
			text, err = p.line()
		}
		if err == nil && text != "ready" {
			err = fmt.Errorf("a rank said %q", text)
		}
	}
	if err != nil {
		j.stop()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return j, nil
}

func startProcess(ctx context.Context, env []string, rank, ranks int, driver []string) (*process, error) {
	args := append(driver[1:len(driver):len(driver)], strconv.Itoa(rank), strconv.Itoa(ranks))
	p := &process{cmd: exec.CommandContext(ctx, driver[0], args...), lines: make(chan string), stderr: new(strings.Builder)}
	p.cmd.Env = append(append(os.Environ(), env...), fmt.Sprintf("NCCL_HOSTID=tutti-bench-%d", rank))
	p.cmd.Stderr = p.stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.lines)
		s := bufio.NewScanner(out)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			// NCCL itself may print lines of its own.
			for _, word := range []string{"id ", "ready", "ns "} {
				if strings.HasPrefix(s.Text(), word) {
					p.lines <- s.Text()
				}
			}
		}
	}()
	return p, nil
}

// line is what the rank says next.
func (p *process) line() (string, error) {
	select {
	case text, ok := <-p.lines:
		if !ok {
			err := p.cmd.Wait()
			return "", fmt.Errorf("a rank ended: %v %s", err, strings.TrimSpace(p.stderr.String()))
		}
		return text, nil
	case <-time.After(patience):
		return "", errors.New("a rank does not answer")
	}
}

// ask asks all ranks the same and returns rank 0's numbers.
func (j *job) ask(question string) ([]float64, error) {
	for _, p := range j.ranks {
		if _, err := fmt.Fprintln(p.in, question); err != nil {
			return nil, err
		}
	}
	var numbers []float64
	for r, p := range j.ranks {
		text, err := p.line()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", j.name, err)
		}
		if r > 0 {
			continue
		}
		for _, word := range strings.Fields(text)[1:] {
			x, err := strconv.ParseFloat(word, 64)
			if err != nil {
				return nil, err
			}
			numbers = append(numbers, x)
		}
	}
	return numbers, nil
}

// stop lets the ranks end, or ends them.
func (j *job) stop() {
	for _, p := range j.ranks {
		_ = p.in.Close()
	}
	for _, p := range j.ranks {
		done := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
		for range p.lines { // until it ends
		}
		_ = p.cmd.Wait()
		done.Stop()
	}
}

var errNoCompiler = errors.New("there is no C compiler to build the driver with")

// compile builds the C driver.
func compile(ctx context.Context, dir string) (string, error) {
	source, driver := filepath.Join(dir, "nccl.c"), filepath.Join(dir, "nccl")
	if err := os.WriteFile(source, []byte(peers.NCCL), 0o600); err != nil {
		return "", err
	}
	for _, cc := range []string{"cc", "gcc", "clang"} {
		if _, err := exec.LookPath(cc); err != nil {
			continue
		}
		out, err := exec.CommandContext(ctx, cc, "-O2", "-o", driver, source, "-ldl").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%s: %w: %s", cc, err, out)
		}
		return driver, nil
	}
	return "", errNoCompiler
}
