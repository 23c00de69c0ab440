package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/store"
)

// An elasticRun kills ranks and adds others, while all add up.
type elasticRun struct {
	out     io.Writer
	self    string   // path of this program
	env     []string // of the processes
	rounds  int
	server  *store.Server
	started int        // processes started
	alive   []*process // by rank
}

// The largest and the smallest number of ranks in a round.
const elasticMost, elasticLeast = 4, 2

// shrinkMain is the command "gputest shrink". The budget, SIGINT and SIGTERM end the run with an
// error; its processes are then killed.
func shrinkMain(args []string) error {
	set := flag.NewFlagSet("shrink", flag.ContinueOnError)
	library := set.String("nccl", os.Getenv("TUTTI_NCCL_LIBRARY"), "path of libnccl; none: what is found")
	budget := set.Duration("budget", 5*time.Minute, "time for all")
	e := &elasticRun{out: os.Stdout}
	set.IntVar(&e.rounds, "rounds", 5, "how often")
	if err := set.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *budget)
	defer cancel()
	e.env = []string{"TUTTI_NCCL_LIBRARY=" + *library}
	if os.Getenv("NCCL_SOCKET_IFNAME") == "" {
		e.env = append(e.env, "NCCL_SOCKET_IFNAME=lo")
	}
	return e.run(ctx)
}

// run starts the store and the ranks, and runs the rounds and the final check in the caller's
// goroutine. The first error ends it. All processes have exited when it returns.
func (e *elasticRun) run(ctx context.Context) (err error) {
	if e.self, err = os.Executable(); err != nil {
		return err
	}
	what, err := describeGPU(ctx, e.env)
	if err != nil {
		return err
	}
	const secret = "for one job"
	e.server, err = store.Listen(ctx, "127.0.0.1:0", store.Config{Secret: []byte(secret), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer e.server.Close()
	e.env = append(e.env, "TUTTI_SECRET="+secret, "TUTTI_STORE="+e.server.Addr().String())
	defer func() { e.stop(err != nil) }()
	for r := range elasticMost {
		if err := e.start(ctx, fmt.Sprint("TUTTI_RANK=", r), fmt.Sprint("TUTTI_SIZE=", elasticMost)); err != nil {
			return err
		}
	}
	if _, err := e.formed(ctx); err != nil {
		return err
	}
	fmt.Fprintf(e.out, "%s, %s, without MPS, ranks killed and replaced while all add up on the device\n\n| round | %s | back to %d |\n| --- | --- | --- |\n",
		time.Now().UTC().Format("2006-01-02 15:04"), what, "a rank is killed, and the others go on", elasticMost)
	for round := range e.rounds {
		if err := e.round(ctx, round); err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
	}
	return e.end(ctx)
}

// stop ends the processes. After a failure it prints their standard error and the stacks of
// their goroutines.
func (e *elasticRun) stop(failed bool) {
	var after time.Duration
	if failed {
		after = 3 * time.Second
		for _, p := range e.alive {
			_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		}
	}
	for r, p := range e.alive {
		_ = p.stop(after)
		if failed {
			fmt.Fprintf(e.out, "\nrank %d (%v) said:\n%s\n", r, p.cmd.ProcessState, strings.TrimSpace(p.stderr.String()))
		}
	}
}

// start starts a process, which becomes the last rank.
func (e *elasticRun) start(ctx context.Context, env ...string) error {
	env = append(env, fmt.Sprint("GPUTEST_ID=", e.started), fmt.Sprint("NCCL_HOSTID=tutti-elastic-", e.started))
	e.started++
	// stop ends the process, after asking it to end.
	p, err := spawn(context.WithoutCancel(ctx), append(e.env[:len(e.env):len(e.env)], env...), e.self, "elastic")
	if err != nil {
		return err
	}
	e.alive = append(e.alive, p)
	return expect(ctx, []*process{p}, "ready")
}

// formed waits until all processes are ranks of one Comm, and returns the time.
func (e *elasticRun) formed(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	for r, p := range e.alive {
		if err := expect(ctx, []*process{p}, fmt.Sprintf("ready %d %d", r, len(e.alive))); err != nil {
			return 0, fmt.Errorf("rank %d: %w", r, err)
		}
	}
	return time.Since(begin), nil
}

// round kills ranks one by one until elasticLeast are left, and then adds new ones. After each kill
// the others must form a Comm again, and the killed process must have died of SIGKILL.
func (e *elasticRun) round(ctx context.Context, round int) error {
	var killed []string
	for len(e.alive) > elasticLeast {
		// Every rank is killed in some round, also rank 0.
		victim := (round + len(killed)*2) % len(e.alive)
		time.Sleep(time.Duration(20+rand.IntN(80)) * time.Millisecond) // the ranks add up
		p := e.alive[victim]
		if err := p.cmd.Process.Kill(); err != nil {
			return err
		}
		e.alive = slices.Delete(e.alive, victim, victim+1)
		took, err := e.formed(ctx)
		if err != nil {
			return fmt.Errorf("rank %d was killed: %w", victim, err)
		}
		_ = p.stop(answerTimeout)
		if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			return fmt.Errorf("rank %d was not killed: %v", victim, p.cmd.ProcessState)
		}
		killed = append(killed, fmt.Sprintf("rank %d: %d after %v", victim, len(e.alive), took.Round(time.Millisecond)))
	}
	n := elasticMost - len(e.alive)
	for range n {
		if err := e.start(ctx, "TUTTI_LATE=1"); err != nil {
			return err
		}
		// Grow admits processes in the order in which they apply.
		if err := store.Prefix(e.server.Store(), jobstore.Ranks("")).Wait(ctx, jobstore.Ticket(int64(e.started-elasticMost))); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(e.alive[0].in, "grow %d\n", n); err != nil {
		return err
	}
	took, err := e.formed(ctx)
	if err != nil {
		return fmt.Errorf("growing: %w", err)
	}
	fmt.Fprintf(e.out, "| %d | %s | after %v |\n", round+1, strings.Join(killed, "; "), took.Round(time.Millisecond))
	return nil
}

// end stops all ranks and compares their sums, which each rank has checked. It returns an error if
// the sums differ or a process fails.
func (e *elasticRun) end(ctx context.Context) error {
	if _, err := fmt.Fprintln(e.alive[0].in, "stop"); err != nil {
		return err
	}
	sums := make(map[string]bool)
	for r, p := range e.alive {
		text, err := p.line(ctx)
		if err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
		sums[text] = true
	}
	for text := range sums {
		var steps, total int64
		if _, err := fmt.Sscanf(text, "ns %d %d", &steps, &total); err != nil || len(sums) != 1 {
			return fmt.Errorf("the ranks' sums: %v: %w", sums, err)
		}
		fmt.Fprintf(e.out, "\n%d processes, %d killed, %d steps: all %d ranks have the sum %d, which is exact\n",
			e.started, e.started-elasticMost, steps, len(e.alive), total)
	}
	var errs []error
	for _, p := range e.alive {
		errs = append(errs, p.stop(20*time.Second))
	}
	e.alive = nil
	return errors.Join(errs...)
}
