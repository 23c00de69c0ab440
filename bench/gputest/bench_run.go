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

// benchOps are the collectives of NCCL, by their names in tutti bench.
const benchOps = "allreduce,broadcast,reduce,allgather,reducescatter,gather,scatter,alltoall"

// A benchRun compares tutti bench, or its measuring loop, with the same loop in C.
type benchRun struct {
	out    io.Writer
	tutti  string   // path of the tutti program
	self   string   // path of this program
	others []string // paths of other gputests to compare with
	ranks  []int    // numbers of ranks
	ops    string   // operations, separated by commas
	flags  []string // of tutti bench: sizes and budget
	sets   int      // maximum number of times that the jobs are started
	turns  bool     // the jobs of a set answer in turns; else one job runs at a time
	rounds int      // of turns for each point
	ahead  int      // maximum number of operations in flight
	env    []string
	driver string // path of the C driver

	points, within, againWithin int // counted by rows: points; points close to C; points where the second C job is close to C
}

// benchMain is the command "gputest bench". The budget, SIGINT and SIGTERM end the child processes
// by way of ctx; the table has the points until then.
func benchMain(args []string) error {
	b := &benchRun{out: os.Stdout}
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	var err error
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	set.StringVar(&b.tutti, "tutti", filepath.Join(filepath.Dir(b.self), "tutti"), "the tutti to measure")
	library := set.String("nccl", os.Getenv("TUTTI_NCCL_LIBRARY"), "path of libnccl; none: what is found")
	ranks := set.String("ranks", "2,4,8", "numbers of ranks")
	budget := set.Duration("budget", 120*time.Second, "time for all")
	least := set.Int("b", 1<<10, "smallest size in bytes")
	most := set.Int("e", 32<<20, "largest size in bytes")
	set.StringVar(&b.ops, "op", benchOps, "operations")
	set.IntVar(&b.sets, "sets", 7, "how often the jobs begin anew, at most")
	set.BoolVar(&b.turns, "turns", false, "have the loop of tutti bench, C, and others answer about each point in turns, not one after the other about all")
	set.IntVar(&b.rounds, "rounds", 3, "how often each answers about a point in turn")
	set.IntVar(&b.ahead, "ahead", 256, "operations started before the first is waited for, at most")
	other := set.String("other", "", "other gputests, whose tutti is measured, too")
	bind := set.Bool("bind", true, "divide the cores among the ranks of each job, if there are two for each")
	withMPS := set.Bool("mps", true, "start MPS where possible")
	if err := set.Parse(args); err != nil {
		return err
	}
	if *other != "" {
		b.others = strings.Split(*other, ",")
	}
	for _, word := range strings.Split(*ranks, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 2 {
			return fmt.Errorf("%q is not a number of ranks: 2 at least, because one moves nothing", word)
		}
		b.ranks = append(b.ranks, n)
	}
	b.flags = []string{"-b", strconv.Itoa(*least), "-e", strconv.Itoa(*most), "-f", "32", "--ahead", strconv.Itoa(b.ahead)}
	b.env = []string{"TUTTI_NCCL_LIBRARY=" + *library, fmt.Sprintf("TUTTI_BENCH_BYTES=%d", *most)}
	if *bind {
		b.flags = append(b.flags, "--bind")
		b.env = append(b.env, bindEnv+"=1")
	}
	if os.Getenv("NCCL_SOCKET_IFNAME") == "" {
		b.env = append(b.env, "NCCL_SOCKET_IFNAME=lo")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *budget)
	defer cancel()
	what, err := describeGPU(ctx, b.env)
	if err != nil {
		return err
	}
	server := startMPS(ctx, *withMPS)
	defer server.stop()
	b.env = append(b.env, server.env...)
	fmt.Fprintf(b.out, "%s, %s, MPS %v\n", time.Now().UTC().Format("2006-01-02 15:04"), what, server)
	return b.run(ctx)
}

// run prints the table for each number of ranks, and then host staging. It divides the time among
// the numbers of ranks: a job of more ranks takes longer, and every job has a fixed cost. A number
// of ranks that fails has a row that says so, and the next one follows; run returns all errors.
func (b *benchRun) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "gputest")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if b.driver, err = compile(ctx, dir); err != nil {
		return err
	}
	how, compared := "one job after the other", "of the same set"
	if b.turns {
		how, compared = "jobs in turns of milliseconds", "of the same time"
	}
	fmt.Fprintf(b.out, "\n%s; medians in us, (least, most) of the sets of jobs; up to %d ahead. Ratio and difference are medians, to C's answers %s; "+
		"in brackets those of C again.\n\n| operation | bytes | ranks | ratio | difference | verdict", how, b.ahead, compared)
	for _, d := range b.drivers() {
		fmt.Fprintf(b.out, " | %s", d.name)
	}
	fmt.Fprintf(b.out, " |\n%s |\n", strings.Repeat("| --- ", 6+len(b.drivers())))
	const begin = 8
	weight := begin / 2 // for staging
	for _, n := range b.ranks {
		weight += begin + n
	}
	var failures []error
	for _, n := range b.ranks {
		within, cancel := share(ctx, begin+n, weight)
		err := b.measure(within, dir, n)
		cancel()
		weight -= begin + n
		if err != nil {
			fmt.Fprintf(b.out, "| %d ranks | | | | | FAILED: %s | |\n", n, strings.ReplaceAll(err.Error(), "\n", " "))
			failures = append(failures, fmt.Errorf("%d ranks failed", n))
		}
		if ctx.Err() != nil {
			return errors.New("the time is over")
		}
	}
	fmt.Fprintf(b.out, "\n%d of %d points within 3%% of C where that takes 200 us or more, and within 2 us below; "+
		"a second job of C's: %d.\n", b.within, b.points, b.againWithin)
	fmt.Fprintf(b.out, "\nstaged (device memory by way of the host's), 2 ranks:\n\n| operation | bytes | tutti us | bus GB/s |\n| --- | --- | --- | --- |\n")
	list, err := b.tuttiBench(ctx, bench.Staged, 2)
	for _, r := range list {
		fmt.Fprintf(b.out, "| %s | %d | %.1f | %.2f |\n", r.Op, r.Bytes, r.P50, r.BusBW)
	}
	return errors.Join(append(failures, err)...)
}

// share returns a context with the fraction part/of of the remaining time.
func share(ctx context.Context, part, of int) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)*time.Duration(part)/time.Duration(of))
}

// A cell is one point of the table. jobs holds each driver's medians of the sets. vsC
// holds each driver's comparison with the C driver, which was measured in the same set or,
// in turns, at the same time.
type cell struct {
	bench.Result
	jobs []series   // microseconds, by driver
	vsC  []ratioToC // by driver
}

// A ratioToC is the difference between a driver's times and C's.
type ratioToC struct {
	ratio, difference series // difference in microseconds
}

func (b *ratioToC) add(us, c float64) {
	b.ratio = append(b.ratio, us/c)
	b.difference = append(b.difference, us-c)
}

// within reports whether the medians are close to C's median c, in microseconds.
func (b *ratioToC) within(c float64) bool {
	if c >= 200 {
		return b.ratio.at(0.5) <= 1.03
	}
	return b.difference.at(0.5) <= 2
}

// A driver is a program whose measuring loop is timed.
type driver struct {
	name    string
	command []string // nil: tutti bench itself, which measures all points in one run
}

// drivers returns the programs to compare. Index 1 is C and index 2 is C again.
func (b *benchRun) drivers() []driver {
	list := []driver{{name: "tutti bench"}, {"C", []string{b.driver}}, {"C again", []string{b.driver}}}
	if b.turns {
		list[0] = driver{"tutti", []string{b.self, "loop"}}
	}
	for _, path := range b.others {
		list = append(list, driver{filepath.Base(path), []string{path, "loop"}})
	}
	return list
}

// measure runs up to b.sets sets and prints their rows, also after an error. In each set it runs
// the drivers one after the other, or in turns, so that a disturbance of the machine affects all of
// them. A communicator's speed also depends on where its connections and threads happen to be
// placed, so each set starts the jobs anew. It ends early when the time does not suffice for
// another set; a set that ctx interrupts is an error only if it is the first.
func (b *benchRun) measure(ctx context.Context, dir string, ranks int) error {
	var cells []cell
	defer func() { b.rows(cells) }()
	for set := range b.sets {
		begin := time.Now()
		err := b.set(ctx, dir, ranks, set, &cells)
		switch {
		case err != nil && ctx.Err() != nil && set > 0:
			return nil // the completed sets count
		case err != nil:
			return err
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) < time.Since(begin)*5/4 {
			return nil
		}
	}
	return nil
}

// set measures all points once. The first set makes the cells from the results of tutti bench. In
// turns, only the first set runs tutti bench, for the list of points.
func (b *benchRun) set(ctx context.Context, dir string, ranks, number int, cells *[]cell) error {
	if b.turns && number > 0 {
		return b.inTurns(ctx, dir, ranks, *cells)
	}
	list, err := b.tuttiBench(ctx, bench.NCCL, ranks)
	if err != nil {
		return err
	}
	if number == 0 {
		for i := range list {
			*cells = append(*cells, cell{Result: list[i], jobs: make([]series, len(b.drivers())), vsC: make([]ratioToC, len(b.drivers()))})
		}
	}
	if b.turns {
		return b.inTurns(ctx, dir, ranks, *cells)
	}
	return b.oneByOne(ctx, dir, ranks, *cells, list)
}

// oneByOne measures all points with one driver after the other, and adds the times to cells only
// when all drivers have answered. Only one job exists at a time, because jobs share the GPU. list
// has the times of tutti bench itself.
func (b *benchRun) oneByOne(ctx context.Context, dir string, ranks int, cells []cell, list []bench.Result) error {
	times := make([]series, len(b.drivers()))
	for i := range list {
		times[0] = append(times[0], list[i].P50)
	}
	for k, d := range b.drivers() {
		if d.command == nil {
			continue
		}
		j, err := b.start(ctx, dir, ranks, k)
		if err != nil {
			return err
		}
		for i := range cells {
			var us float64
			if us, err = b.measureLong(ctx, j, &cells[i]); err != nil {
				break
			}
			times[k] = append(times[k], us)
		}
		j.kill(5 * time.Second)
		if err != nil {
			return err
		}
	}
	for k := range times {
		for i := range cells {
			c := &cells[i]
			c.jobs[k] = append(c.jobs[k], times[k][i])
			c.vsC[k].add(times[k][i], times[1][i])
		}
	}
	return nil
}

// start starts the job of drivers()[number].
func (b *benchRun) start(ctx context.Context, dir string, ranks, number int) (*job, error) {
	d, meet := b.drivers()[number], filepath.Join(dir, fmt.Sprintf("meet%d", number))
	if err := os.WriteFile(meet, make([]byte, 64*ranks), 0o600); err != nil {
		return nil, err
	}
	return startJob(ctx, d.name, ranks, append(b.env[:len(b.env):len(b.env)], "TUTTI_BENCH_MEET="+meet), d.command...)
}

// measureOp returns the time of an operation in a job, in microseconds.
func measureOp(ctx context.Context, j *job, c *cell, times, ahead int) (us float64, err error) {
	all, err := j.askAll(ctx, fmt.Sprintf("loop %s %d %d %d", c.Op, c.Bytes, times, ahead))
	if err != nil {
		return 0, err
	}
	return slowest(c.Op, all) / 1000, nil
}

// estimate returns the approximate time of an operation, in microseconds. If it is short,
// several operations are in flight.
func (b *benchRun) estimate(ctx context.Context, j *job, c *cell, window float64) (us float64, err error) {
	const first, few = 5, 16 // operations
	us, err = measureOp(ctx, j, c, first, 1)
	if err == nil && us < window/few && b.ahead >= few {
		us, err = measureOp(ctx, j, c, 3, few)
	}
	return us, err
}

// measureLong measures a point for as long as tutti bench does, in windows of the same length. The
// first window warms up and does not count.
func (b *benchRun) measureLong(ctx context.Context, j *job, c *cell) (us float64, err error) {
	const budget, window = 150000, 15000 // microseconds
	each, err := b.estimate(ctx, j, c, window)
	if err != nil {
		return 0, err
	}
	ahead := min(max(int(window/each), 4), b.ahead)
	if _, err = measureOp(ctx, j, c, 1, ahead); err != nil {
		return 0, err
	}
	return measureOp(ctx, j, c, max(int(budget/each)/ahead, 5), ahead)
}

// inTurns starts all jobs and measures every point with them in turns. The first error ends it; the
// jobs are killed in any case.
func (b *benchRun) inTurns(ctx context.Context, dir string, ranks int, cells []cell) error {
	var jobs []*job
	for i := range b.drivers() {
		j, err := b.start(ctx, dir, ranks, i)
		if err != nil {
			return err
		}
		defer j.kill(5 * time.Second)
		jobs = append(jobs, j)
	}
	for i := range cells {
		if err := b.point(ctx, jobs, &cells[i]); err != nil {
			return err
		}
	}
	return nil
}

// point measures one point with all jobs in turns, and adds the times to c. C's estimate determines
// the number of operations in flight for all jobs.
func (b *benchRun) point(ctx context.Context, jobs []*job, c *cell) error {
	const window = 12000 // microseconds of one answer
	ahead, times, rounds := 0, 3, b.rounds
	for i := range jobs {
		k := (i + 1) % len(jobs)
		each, err := b.estimate(ctx, jobs[k], c, window)
		if err != nil {
			return err
		}
		if k == 1 { // C determines the number in flight for all
			ahead = min(max(int(window/each), 4), b.ahead)
			if float64(ahead)*each > 2*window {
				times, rounds = 1, min(rounds, 3)
			}
		}
	}
	answers := make([]series, len(jobs))
	for round := range rounds + 1 {
		for i := range jobs {
			k := (i + round) % len(jobs) // each job is first in turn
			us, err := measureOp(ctx, jobs[k], c, times, ahead)
			if err != nil {
				return err
			}
			if round > 0 { // the first round warms up
				answers[k] = append(answers[k], us)
			}
		}
	}
	for k := range answers {
		c.jobs[k] = append(c.jobs[k], answers[k].at(0.5))
		for i, other := range answers[1] {
			c.vsC[k].add(answers[k][i], other)
		}
	}
	return nil
}

// slowest returns the median as tutti bench computes it: of the slowest rank if every rank
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

// tuttiBench runs tutti bench and returns its results. A wrong result is an error. With an
// error it returns the results before it.
func (b *benchRun) tuttiBench(ctx context.Context, engine string, ranks int) ([]bench.Result, error) {
	args := append([]string{"bench", "--engine", engine, "-n", strconv.Itoa(ranks), "--op", b.ops, "--json"}, b.flags...)
	cmd := exec.CommandContext(ctx, b.tutti, args...)
	cmd.Env = append(os.Environ(), b.env...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // tutti ends its ranks
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

// rows prints the measured points with a verdict, and counts them in b. A point without a complete
// set has no row.
func (b *benchRun) rows(cells []cell) {
	for i := range cells {
		c := &cells[i]
		sets := len(c.jobs[len(c.jobs)-1])
		if sets == 0 {
			continue
		}
		other, verdict := c.jobs[1].at(0.5), "slower"
		b.points++
		if c.vsC[0].within(other) {
			verdict = "ok"
			b.within++
		}
		if c.vsC[2].within(other) {
			b.againWithin++
		}
		fmt.Fprintf(b.out, "| %s | %d | %d | %.3f (%.3f) | %+.1f (%+.1f) | %s, %d x", c.Op, c.Bytes, c.Ranks,
			c.vsC[0].ratio.at(0.5), c.vsC[2].ratio.at(0.5), c.vsC[0].difference.at(0.5), c.vsC[2].difference.at(0.5), verdict, sets)
		for _, s := range c.jobs {
			fmt.Fprintf(b.out, " | %.1f (%.1f, %.1f)", s.at(0.5), s.at(0), s.at(1))
		}
		fmt.Fprintln(b.out, " |")
	}
}
