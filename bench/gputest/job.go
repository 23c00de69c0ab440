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

// A process is one rank, or another process that prints lines.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string // lines of the protocol; closed at the end of the output
	stderr *strings.Builder
}

// answerTimeout bounds the wait for an answer in a context without a deadline.
const answerTimeout = 3 * time.Minute

// startJob starts a driver's ranks, passes rank 0's id to the others, and waits until all are
// ready. If ctx ends or a rank fails, it ends all ranks and returns an error. ctx also bounds the
// life of the ranks.
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
	id, err := j.ranks[0].line(ctx)
	for _, p := range j.ranks[1:] {
		if err == nil {
			_, err = fmt.Fprintln(p.in, id)
		}
	}
	for _, p := range j.ranks {
		var text string
		if err == nil {
			text, err = p.line(ctx)
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
	return spawn(ctx, append(env[:len(env):len(env)], fmt.Sprintf("NCCL_HOSTID=tutti-bench-%d", rank)), driver[0], args...)
}

// spawn starts a process, which is killed when ctx ends. A goroutine reads its output and puts the
// lines of the protocol into lines, until the output ends. The caller must call stop, which drains
// lines and waits for the exit.
func spawn(ctx context.Context, env []string, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, name, args...), lines: make(chan string, 4), stderr: new(strings.Builder)}
	p.cmd.Env = append(os.Environ(), env...)
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
			// NCCL may print lines of its own.
			for _, word := range []string{"id ", "ready", "ns "} {
				if strings.HasPrefix(s.Text(), word) {
					p.lines <- s.Text()
				}
			}
		}
	}()
	return p, nil
}

// line returns the next line of the rank. It returns an error if the rank exits, with its standard
// error, or if ctx ends. Without a deadline in ctx it waits for answerTimeout.
func (p *process) line(ctx context.Context) (string, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, answerTimeout)
		defer cancel()
	}
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("a rank does not answer: %w", ctx.Err())
	case text, ok := <-p.lines:
		if !ok {
			err := p.cmd.Wait()
			return "", fmt.Errorf("a rank ended: %v %s", err, strings.TrimSpace(p.stderr.String()))
		}
		return text, nil
	}
}

// ask sends all ranks a question and returns rank 0's numbers.
func (j *job) ask(ctx context.Context, question string) ([]float64, error) {
	all, err := j.askAll(ctx, question)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// askAll sends all ranks a question, waits for every answer, and returns their numbers by rank.
// After an error the ranks' state is unknown, and the job must be stopped.
func (j *job) askAll(ctx context.Context, question string) ([][]float64, error) {
	for _, p := range j.ranks {
		if _, err := fmt.Fprintln(p.in, question); err != nil {
			return nil, err
		}
	}
	var all [][]float64
	for _, p := range j.ranks {
		text, err := p.line(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", j.name, err)
		}
		numbers, err := parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, numbers)
	}
	return all, nil
}

// parse returns the numbers of an answer.
func parse(text string) ([]float64, error) {
	var numbers []float64
	for _, word := range strings.Fields(text)[1:] {
		x, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, x)
	}
	return numbers, nil
}

// stop ends the ranks; they have 20 seconds to end by themselves.
func (j *job) stop() {
	j.kill(20 * time.Second)
}

// kill closes the ranks' input, and kills the ranks that have not exited after a time.
func (j *job) kill(after time.Duration) {
	for _, p := range j.ranks {
		_ = p.in.Close()
	}
	for _, p := range j.ranks {
		_ = p.stop(after)
	}
}

// stop closes the process's input, kills it after a time, and waits for its exit. The
// error is that of Wait.
func (p *process) stop(after time.Duration) error {
	_ = p.in.Close()
	done := time.AfterFunc(after, func() { _ = p.cmd.Process.Kill() })
	defer done.Stop()
	for range p.lines { // until the process ends
	}
	return p.cmd.Wait()
}

var errNoCompiler = errors.New("there is no C compiler to build the driver with")

// compile builds the C driver in dir and returns its path. It returns errNoCompiler if there is no
// C compiler.
func compile(ctx context.Context, dir string) (string, error) {
	source, driver := filepath.Join(dir, "nccl.c"), filepath.Join(dir, "nccl")
	for path, text := range map[string]string{source: peers.NCCL, filepath.Join(dir, "loop.c"): peers.NCCLLoop} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
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
