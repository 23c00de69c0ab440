package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/bench"
)

// benchOps are the collectives that NCCL has, as tutti bench names them.
const benchOps = "allreduce,broadcast,reduce,allgather,reducescatter,gather,scatter,alltoall"

// A benchRun runs tutti bench beside the C driver.
type benchRun struct {
	out    io.Writer
	tutti  string // the program
	ranks  []int
	flags  []string // for tutti bench: sizes and budget
	most   int      // bytes
	rounds int      // at most
	ops    string
	env    []string
	driver string // of C

	points, within int
}

// benchMain is gputest bench.
func benchMain(args []string) error {
	b := &benchRun{out: os.Stdout}
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	set.StringVar(&b.tutti, "tutti", filepath.Join(filepath.Dir(self), "tutti"), "the tutti to measure")
	library := set.String("nccl", os.Getenv("TUTTI_NCCL_LIBRARY"), "path of libnccl; none: what is found")
	ranks := set.String("ranks", "2,4,8", "numbers of ranks")
	budget := set.Duration("budget", 120*time.Second, "time for all")
	point := set.Duration("point", 40*time.Millisecond, "time for a point, in each round")
	set.IntVar(&b.most, "e", 32<<20, "largest size in bytes")
	set.StringVar(&b.ops, "op", benchOps, "operations")
	set.IntVar(&b.rounds, "rounds", 5, "rounds of tutti and C in turns, at most")
	withMPS := set.Bool("mps", true, "start MPS where possible")
	if err := set.Parse(args); err != nil {
		return err
	}
	for _, word := range strings.Split(*ranks, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 2 {
			return fmt.Errorf("%q is not a number of ranks: 2 at least, because one moves nothing", word)
		}
		b.ranks = append(b.ranks, n)
	}
	b.flags = []string{"-b", "1K", "-e", strconv.Itoa(b.most), "-f", "32", "--budget", point.String()}
	b.env = []string{"TUTTI_NCCL_LIBRARY=" + *library, fmt.Sprintf("TUTTI_BENCH_BYTES=%d", b.most)}
	if os.Getenv("NCCL_SOCKET_IFNAME") == "" {
		b.env = append(b.env, "NCCL_SOCKET_IFNAME=lo")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *budget)
	defer cancel()
	what, err := ask(ctx, b.env)
	if err != nil {
		return err
	}
	server := startMPS(ctx, *withMPS)
	defer server.stop()
	b.env = append(b.env, server.env...)
	fmt.Fprintf(b.out, "%s, %s, MPS %v\n", time.Now().UTC().Format("2006-01-02 15:04"), what, server)
	return b.run(ctx)
}

// run divides the time: the more ranks, the longer a job takes, and all take some.
func (b *benchRun) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "gputest")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if b.driver, err = compile(ctx, dir); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "\n| operation | bytes | ranks | tutti us | C us | ratio | difference us | verdict, rounds |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	const begin = 4
	weight := begin // of staging
	for _, n := range b.ranks {
		weight += begin + n
	}
	var failures []error
	for _, n := range b.ranks {
		within, cancel := share(ctx, begin+n, weight)
		err := b.beside(within, dir, n)
		cancel()
		weight -= begin + n
		if err != nil {
			fmt.Fprintf(b.out, "| %d ranks | | | | | | | FAILED: %s |\n", n, strings.ReplaceAll(err.Error(), "\n", " "))
			failures = append(failures, fmt.Errorf("%d ranks failed", n))
		}
		if ctx.Err() != nil {
			return errors.New("the time is over")
		}
	}
	fmt.Fprintf(b.out, "\n%d of %d points within 3%% of C where that takes 200 us or more, and within 2 us below.\n", b.within, b.points)
	fmt.Fprintf(b.out, "\nstaged (device memory by way of the host's), 2 ranks:\n\n| operation | bytes | tutti us | bus GB/s |\n| --- | --- | --- | --- |\n")
	list, err := b.tuttiBench(ctx, bench.Staged, 2)
	for _, r := range list {
		fmt.Fprintf(b.out, "| %s | %d | %.1f | %.2f |\n", r.Op, r.Bytes, r.P50, r.BusBW)
	}
	return errors.Join(append(failures, err)...)
}

// share is a part of the time that is left.
func share(ctx context.Context, part, of int) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)*time.Duration(part)/time.Duration(of))
}

// A cell is one point of the table.
type cell struct {
	op    string
	bytes int
	tutti series
	c     series
}

// beside measures tutti and C in turns, as often as there is time for.
func (b *benchRun) beside(ctx context.Context, dir string, ranks int) error {
	var cells []cell
	for round := range b.rounds {
		begin := time.Now()
		if err := b.round(ctx, dir, ranks, &cells); err != nil {
			if round == 0 {
				b.rows(cells, ranks)
				return err
			}
			break // what there is counts
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) < time.Since(begin)*5/4 {
			break
		}
	}
	b.rows(cells, ranks)
	return nil
}

// round is tutti bench once, and the same points in C. Both begin anew: how fast a
// communicator is also depends on how its connections and threads happen to lie.
func (b *benchRun) round(ctx context.Context, dir string, ranks int, cells *[]cell) error {
	// If its time is over, what it has told is measured in C; that takes as long.
	within, cancel := share(ctx, 1, 2)
	list, failed := b.tuttiBench(within, bench.NCCL, ranks)
	cancel()
	fresh, err := b.inC(ctx, dir, ranks, list)
	// Of the first round, what there is counts; later, only one that came to its end.
	if err == nil {
		err = failed
	}
	if *cells == nil {
		*cells = fresh
		return err
	}
	if err != nil {
		return err
	}
	for i := range fresh {
		c := &(*cells)[i]
		c.tutti, c.c = append(c.tutti, fresh[i].tutti...), append(c.c, fresh[i].c...)
	}
	return nil
}

// inC measures in C what tutti bench has measured.
func (b *benchRun) inC(ctx context.Context, dir string, ranks int, list []bench.Result) (cells []cell, err error) {
	meet := filepath.Join(dir, fmt.Sprintf("meet%d", ranks))
	if err := os.WriteFile(meet, make([]byte, 64*ranks), 0o600); err != nil {
		return nil, err
	}
	j, err := startJob(ctx, "C", ranks, append(b.env[:len(b.env):len(b.env)], "TUTTI_BENCH_MEET="+meet), b.driver)
	if err != nil {
		return nil, err
	}
	defer j.kill(5 * time.Second)
	for _, r := range list {
		const warm, most = 5, 2000
		ahead := max(r.Ahead, 1)
		if _, err := j.ask(ctx, fmt.Sprintf("loop %s %d %d 1", r.Op, r.Bytes, warm)); err != nil {
			return cells, err
		}
		if _, err := j.ask(ctx, fmt.Sprintf("loop %s %d 1 %d", r.Op, r.Bytes, ahead)); err != nil {
			return cells, err
		}
		all, err := j.askAll(ctx, fmt.Sprintf("loop %s %d %d %d", r.Op, r.Bytes, min(r.Iters/ahead, most), ahead))
		if err != nil {
			return cells, err
		}
		cells = append(cells, cell{r.Op, r.Bytes, series{r.P50}, series{slowest(r.Op, all) / 1000}})
	}
	return cells, nil
}

// slowest is the median as tutti bench takes it: of the slowest rank where every rank
// waits for every other, else of the last rank in each iteration.
func slowest(op string, ranks [][]float64) float64 {
	if slices.Contains([]string{"allreduce", "allgather", "reducescatter", "alltoall"}, op) {
		most := 0.0
		for _, times := range ranks {
			most = max(most, series(times).at(0.5))
		}
		return most
	}
	last := slices.Clone(ranks[0])
	for _, times := range ranks[1:] {
		for i := range last {
			last[i] = max(last[i], times[i])
		}
	}
	return series(last).at(0.5)
}

// tuttiBench runs tutti bench and returns its results, all of which must be right;
// beside an error, those that it had told before.
func (b *benchRun) tuttiBench(ctx context.Context, engine string, ranks int) ([]bench.Result, error) {
	args := append([]string{"bench", "--engine", engine, "-n", strconv.Itoa(ranks), "--op", b.ops, "--json"}, b.flags...)
	cmd := exec.CommandContext(ctx, b.tutti, args...)
	cmd.Env = append(os.Environ(), b.env...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // so that its ranks end, too
	cmd.WaitDelay = 10 * time.Second
	failed := cmd.Run()
	if failed != nil {
		failed = fmt.Errorf("tutti bench --engine %s: %w: %s", engine, failed, strings.TrimSpace(stderr.String()))
	}
	var list []bench.Result
	for line := range bytes.Lines(out.Bytes()) {
		var r bench.Result
		if err := json.Unmarshal(line, &r); err != nil {
			return list, errors.Join(failed, fmt.Errorf("%w: %s", err, line))
		}
		if r.Wrong != 0 || r.Engine != engine || r.Ranks != ranks {
			return list, errors.Join(failed, fmt.Errorf("not a right result of %s: %s", engine, line))
		}
		list = append(list, r)
	}
	return list, failed
}

// rows prints the points and judges them.
func (b *benchRun) rows(cells []cell, ranks int) {
	for i := range cells {
		c := &cells[i]
		t, other := c.tutti.at(0.5), c.c.at(0.5)
		b.points++
		verdict := "slower"
		if other >= 200 && t <= 1.03*other || other < 200 && t <= other+2 {
			verdict = "ok"
			b.within++
		}
		fmt.Fprintf(b.out, "| %s | %d | %d | %.1f (%.1f, %.1f) | %.1f (%.1f, %.1f) | %.3f | %+.1f | %s, %d x |\n", c.op, c.bytes, ranks,
			t, c.tutti.at(0), c.tutti.at(1), other, c.c.at(0), c.c.at(1), t/other, t-other, verdict, len(c.tutti))
	}
}
