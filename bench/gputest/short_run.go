package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A shortRun is "gputest short": every section, within a budget of time. Only the goroutine that calls
// run uses its fields. The ranks are processes, and their jobs are asked one question at a time.
type shortRun struct {
	out    io.Writer
	self   string // path of this program
	driver string // path of the C driver; "": there is no compiler
	env    []string
	server *mps
	ranks  *job // two ranks with a Comm, shared by several sections; nil: not started

	only, otherProgram                        string // the flags of these names
	runs, aborts, kills, cycles, dups, rounds int    // the flags of these names
	bytes                                     int    // of a staged AllReduce
	streamRanks, connections                  []int  // of the section streams: numbers of ranks, CUDA_DEVICE_MAX_CONNECTIONS
	failed                                    bool
}

// A section checks one property, within a time limit.
type section struct {
	name  string
	limit time.Duration
	show  func(ctx context.Context) error
}

// short is the command "gputest short". The budget, SIGINT and SIGTERM end the run; the rows until
// then are already printed.
func short(args []string) error {
	s := &shortRun{out: os.Stdout, streamRanks: []int{1, 2, 4}, connections: []int{1, 8, 32}}
	set := flag.NewFlagSet("short", flag.ContinueOnError)
	library := set.String("nccl", os.Getenv("TUTTI_NCCL_LIBRARY"), "path of libnccl; none: what is found")
	budget := set.Duration("budget", 190*time.Second, "time for all")
	withMPS := set.Bool("mps", true, "start MPS where possible")
	set.StringVar(&s.only, "only", "", "sections, separated by commas: order,streams,batch,staging,enqueue,bare,abort,kill,cycles,dups; none: all")
	set.StringVar(&s.otherProgram, "beside", "", "another gputest, whose package nccl is compared with this one's")
	set.IntVar(&s.runs, "runs", 1000, "runs of stream order")
	set.IntVar(&s.aborts, "aborts", 50, "operations ended by Abort")
	set.IntVar(&s.kills, "kills", 50, "ranks killed")
	set.IntVar(&s.cycles, "cycles", 500, "communicators made and closed, Go and C")
	set.IntVar(&s.dups, "dups", 40, "Comms of 2 ranks made and closed")
	set.IntVar(&s.rounds, "rounds", 20, "rounds of measuring, in turns")
	set.IntVar(&s.bytes, "bytes", 256<<20, "bytes of a staged AllReduce")
	if err := set.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *budget)
	defer cancel()
	s.env = []string{"TUTTI_NCCL_LIBRARY=" + *library, fmt.Sprintf("TUTTI_BENCH_BYTES=%d", s.bytes)}
	if os.Getenv("NCCL_SOCKET_IFNAME") == "" {
		s.env = append(s.env, "NCCL_SOCKET_IFNAME=lo")
	}
	return s.run(ctx, *withMPS)
}

// run runs the sections one after the other and prints their rows. A section that fails does not
// end the run; the shared ranks are then stopped and started again for the next one. run returns an
// error if any row failed or ctx has ended.
func (s *shortRun) run(ctx context.Context, withMPS bool) error {
	var err error
	if s.self, err = os.Executable(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "gputest")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if s.driver, err = compile(ctx, dir); err != nil {
		s.say("", false, "the C side: %v", err)
	}
	what, err := describeGPU(ctx, s.env)
	if err != nil {
		return err
	}
	s.server = startMPS(ctx, withMPS)
	defer s.server.stop()
	fmt.Fprintf(s.out, "%s, %s, MPS %v\n\n| what | result | |\n| --- | --- | --- |\n", time.Now().UTC().Format("2006-01-02 15:04"), what, s.server)
	sections := []section{
		{"order", 30 * time.Second, s.order},
		{"streams", 150 * time.Second, s.streams},
		{"staging", 40 * time.Second, s.staging},
		{"batch", 15 * time.Second, s.batch},
		{"enqueue", 40 * time.Second, s.enqueue},
		{"bare", 40 * time.Second, s.bareNCCL},
		{"abort", 80 * time.Second, s.abort},
		{"dups", 20 * time.Second, s.dupCycles},
		{"kill", 150 * time.Second, s.kill}, // ends MPS
		{"cycles", 10 * time.Minute, s.bareCycles},
	}
	for _, part := range sections {
		if s.only != "" && !slices.Contains(strings.Split(s.only, ","), part.name) {
			continue
		}
		begin := time.Now()
		within, cancel := context.WithTimeout(ctx, part.limit)
		err := part.show(within)
		cancel()
		if err != nil {
			s.say(part.name, false, "%v", err)
			s.stopRanks() // their state is unknown
		}
		fmt.Fprintf(s.out, "| %s took | %.1f s | |\n", part.name, time.Since(begin).Seconds())
		if ctx.Err() != nil {
			s.say("", false, "the time is over")
			break
		}
	}
	s.stopRanks()
	if s.failed {
		return errors.New("not all was as it must be")
	}
	return nil
}

// say prints one row of the table.
func (s *shortRun) say(what string, ok bool, format string, args ...any) {
	verdict := "ok"
	if !ok {
		verdict, s.failed = "FAILED", true
	}
	fmt.Fprintf(s.out, "| %s | %s | %s |\n", what, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "), verdict)
}

// comm returns the job of two ranks with a Comm; the first call starts it.
func (s *shortRun) comm(ctx context.Context) (*job, error) {
	if s.ranks != nil {
		return s.ranks, nil
	}
	// The job outlives the section.
	j, err := startJob(context.WithoutCancel(ctx), "a Comm", 2, append(s.env, s.server.env...), s.self, "comm")
	if err == nil {
		s.ranks = j
	}
	return j, err
}

func (s *shortRun) stopRanks() {
	if s.ranks != nil {
		s.ranks.kill(5 * time.Second)
		s.ranks = nil
	}
}

// almostOver reports whether the section's time is almost spent.
func almostOver(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(end) < 3*time.Second
}

// order counts the right results of collectives with and without Batch.On. It passes if all results
// with On are right, and some without it are wrong. It ends early, and then fails, when the
// section's time is almost spent.
func (s *shortRun) order(ctx context.Context) error {
	j, err := s.comm(ctx)
	if err != nil {
		return err
	}
	count := func(question string, runs int) (right, wrong int, err error) {
		for done := 0; done < runs && !almostOver(ctx); {
			n := min(50, runs-done)
			all, err := j.askAll(ctx, fmt.Sprintf("%s %d", question, n))
			if err != nil {
				return right, wrong, err
			}
			done += n
			// A rank answers with its numbers of right and wrong runs; see commRank.order. A run is wrong
			// on a rank whose own result is wrong, and the answers do not say which runs these are. The
			// largest number is therefore a lower bound of the runs that are wrong on any rank. It is 0
			// only if every run is right on every rank.
			mostWrong := 0
			for _, numbers := range all {
				mostWrong = max(mostWrong, int(numbers[1]))
			}
			right, wrong = right+n-mostWrong, wrong+mostWrong
		}
		return right, wrong, nil
	}
	right, wrong, err := count("order", s.runs)
	s.say("stream order, 2 ranks, Batch.On", err == nil && right == s.runs, "right in %d of %d runs, wanted %d", right, right+wrong, s.runs)
	if err != nil {
		return err
	}
	right, wrong, err = count("disorder", max(s.runs/10, 1))
	s.say("the same without On: must be wrong", err == nil && wrong > 0, "wrong in %d of %d runs", wrong, right+wrong)
	return err
}

// batch compares a Batch of many small tensors with one call for each.
func (s *shortRun) batch(ctx context.Context) error {
	j, err := s.comm(ctx)
	if err != nil {
		return err
	}
	all, err := inTurns(ctx, s.rounds, []*job{j, j}, []string{"group 1", "single 1"})
	if err != nil {
		return err
	}
	group, single := all[0].at(0.5), all[1].at(0.5)
	s.say(fmt.Sprintf("a Batch of %d x 1 KiB compared with as many calls", tensorsInBatch), group < single,
		"%.0f us and %.0f us, ratio %.1f (%d rounds)", group, single, single/group, len(all[0]))
	return nil
}

// inTurns asks each job its question, round after round. It returns the jobs' medians in
// microseconds. The first round warms up. It ends early, without an error, when the section's time
// is almost spent; the first answer that fails is an error.
func inTurns(ctx context.Context, rounds int, jobs []*job, questions []string) ([]series, error) {
	all := make([]series, len(jobs))
	for round := range rounds + 1 {
		if round > 1 && almostOver(ctx) {
			break
		}
		for i := range jobs {
			k := (i + round) % len(jobs)
			numbers, err := jobs[k].ask(ctx, questions[k])
			if err != nil {
				return nil, err
			}
			if round > 0 {
				all[k] = append(all[k], series(numbers).at(0.5)/1000)
			}
		}
	}
	return all, nil
}

// staging compares host staging with its parts, and with the naive way, in a job of its own. It
// prints FAILED if staging takes 1.3 times the slower part, or more time than the naive way.
func (s *shortRun) staging(ctx context.Context) error {
	j, err := startJob(ctx, "staging", 2, append(s.env, s.server.env...), s.self, "staged")
	if err != nil {
		return err
	}
	defer j.kill(5 * time.Second)
	if _, err := j.ask(ctx, fmt.Sprintf("right %d", s.bytes)); err != nil {
		return err
	}
	questions := []string{"staged 1", "copies 1", "collective 1", "naive 1"}
	all, err := inTurns(ctx, max(s.rounds/2, 1), []*job{j, j, j, j}, questions)
	if err != nil {
		return err
	}
	t := make([]float64, len(all))
	for i := range all {
		t[i] = all[i].at(0.5)
	}
	staged, copies, collective, naive := t[0], t[1], t[2], t[3]
	slower := staged / max(copies, collective)
	s.say(fmt.Sprintf("staged AllReduce of %d MiB, 2 ranks", s.bytes>>20), slower <= 1.3,
		"%.1f ms; copies alone %.1f, CPU collective alone %.1f: %.2fx of the slower (%d rounds)",
		staged/1000, copies/1000, collective/1000, slower, len(all[0]))
	s.say("the same compared with the naive way", staged < naive, "naive %.1f ms: %.2fx", naive/1000, naive/staged)
	return nil
}

// abort counts the operations that Abort ended as expected on every rank. The row fails unless all
// did; an answer that fails is an error.
func (s *shortRun) abort(ctx context.Context) error {
	j, err := s.comm(ctx)
	if err != nil {
		return err
	}
	good, done, longest := 0, 0, 0.0
	for done < s.aborts && !almostOver(ctx) {
		n := min(5, s.aborts-done)
		all, err := j.askAll(ctx, fmt.Sprintf("abort %d", n))
		if err != nil {
			s.say("Abort", false, "%d good of %d", good, done)
			return err
		}
		least := n
		for _, numbers := range all {
			least, longest = min(least, int(numbers[0])), max(longest, numbers[1])
		}
		good, done = good+least, done+n
	}
	s.say("Abort from another goroutine, one rank held back on the GPU, 2 ranks", good == s.aborts,
		"%d of %d told in time, closed, and a new Comm made; wanted %d; longest %.0f ms", good, done, s.aborts, longest/1e6)
	return nil
}

// dupCycles prints the resources that closed Comms leave behind on rank 0. It has no bound; only an
// answer that fails is an error.
func (s *shortRun) dupCycles(ctx context.Context) error {
	j, err := s.comm(ctx)
	if err != nil {
		return err
	}
	if _, err := j.ask(ctx, "dups 3"); err != nil { // allocates what is allocated only once
		return err
	}
	var first, last []float64
	done := 0
	for done < s.dups && !almostOver(ctx) {
		n := min(10, s.dups-done)
		numbers, err := j.ask(ctx, fmt.Sprintf("dups %d", n))
		if err != nil {
			return err
		}
		if first == nil {
			first = numbers[:3]
		}
		last, done = numbers[3:], done+n
	}
	s.say("Comms of 2 ranks made, used and closed", true, "%d: %s", done, growth(first, last))
	return nil
}

// growth formats the difference of two usages.
func growth(before, after []float64) string {
	if len(before) < 3 || len(after) < 3 {
		return "not measured"
	}
	return fmt.Sprintf("device memory %+.1f MiB, descriptors %+.0f, threads %+.0f",
		(after[0]-before[0])/(1<<20), after[1]-before[1], after[2]-before[2])
}

// bareCycles compares the resources that communicators leave behind in Go and in C, one process
// after the other with half of the time each. The row fails if Go leaves more behind than C.
func (s *shortRun) bareCycles(ctx context.Context) error {
	if s.driver == "" {
		return errNoCompiler
	}
	s.stopRanks()
	end, _ := ctx.Deadline()
	each := max(int(time.Until(end).Seconds()/2)-4, 3)
	var results [][]float64
	for _, d := range [][]string{{s.self, "cycles"}, {s.driver, "cycles"}} {
		p, err := spawn(ctx, append(s.env, s.server.env...), d[0], append(d[1:], fmt.Sprint(s.cycles), fmt.Sprint(each))...)
		if err != nil {
			return err
		}
		text, err := p.line(ctx)
		_ = p.stop(5 * time.Second)
		if err != nil {
			return err
		}
		numbers, err := parse(text)
		if err != nil {
			return err
		}
		if len(numbers) != 7 {
			return fmt.Errorf("%s says %q", filepath.Base(d[0]), text)
		}
		results = append(results, numbers)
		fmt.Fprintf(s.out, "| %s | %.0f communicators: %s | |\n", filepath.Base(d[0]), numbers[0], growth(numbers[1:4], numbers[4:]))
	}
	g, c := results[0], results[1]
	more := func(i int) bool { return g[i+3]-g[i] > max(c[i+3]-c[i], 0) }
	const slack = 2 // Go's runtime may start threads at any time
	bad := more(1) || more(2) || g[6]-g[3] > max(c[6]-c[3], 0)+slack
	s.say("communicators made, used and closed, one in five given up half way", !bad,
		"Go, %.0f: %s; C, %.0f: %s; wanted %d", g[0], growth(g[1:4], g[4:]), c[0], growth(c[1:4], c[4:]), s.cycles)
	return nil
}
