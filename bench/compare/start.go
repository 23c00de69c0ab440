package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/bench/peers"
)

// startEnv makes this program a rank that does one AllReduce.
const startEnv = "TUTTI_COMPARE_START"

// settleEnv has such a rank wait, before it says what it holds, until that does not change any more.
const settleEnv = "TUTTI_COMPARE_SETTLE"

// A starter is a launcher with its program.
type starter struct {
	name    string
	command func(ctx context.Context, ranks int) *exec.Cmd
	first   []time.Duration // from the launcher's start to the end of the last rank's AllReduce
	whole   []time.Duration // to the launcher's end
	held    []holdings      // of each rank, when it has settled; nil: the ranks do not say
}

// startMain times launchers, in turns: tutti run, and mpirun where it is
// installed.
func startMain(ctx context.Context, args []string, out, log io.Writer) error {
	f := flag.NewFlagSet("compare start", flag.ContinueOnError)
	f.SetOutput(log)
	ranks := f.String("ranks", "8", "ranks of each job; several numbers, with commas between them, are a table of each")
	rounds := f.Int("rounds", 10, "how often each launcher is run; one run before that is not counted")
	command := f.String("tutti", "", "the built tutti command; empty: go build builds it")
	if err := f.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "compare-start")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, err := starters(ctx, dir, *command, log)
	if err != nil {
		return err
	}
	for text := range strings.SplitSeq(*ranks, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("--ranks: %q is no number of ranks", text)
		}
		if err := startTable(ctx, all, n, *rounds, out); err != nil {
			return err
		}
	}
	return nil
}

// startTable times the launchers with so many ranks.
func startTable(ctx context.Context, all []*starter, ranks, rounds int, out io.Writer) error {
	for _, s := range all {
		s.first, s.whole, s.held = nil, nil, nil
	}
	for round := range rounds + 1 {
		for i := range all {
			s := all[(i+round)%len(all)] // nobody is always first
			if err := s.run(ctx, ranks, round > 0); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	fmt.Fprintf(out, "%d ranks on this host, median of %d rounds in turns (fastest, slowest), in ms from the launcher's start; "+
		"in a run before these, when the ranks have settled, the median of the ranks (the most of one)\n\n", ranks, rounds)
	fmt.Fprintln(out, "| launcher | to the end of the first AllReduce | to the launcher's end | mappings of memory files | all mappings | "+
		"descriptors | resident, MiB |\n| --- | --- | --- | --- | --- | --- | --- |")
	for _, s := range all {
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", s.name, spread(s.first), spread(s.whole), heldText(s.held))
	}
	fmt.Fprintln(out)
	return nil
}

// starters are the launchers that there are.
func starters(ctx context.Context, dir, command string, log io.Writer) ([]*starter, error) {
	if command == "" {
		command = filepath.Join(dir, "tutti")
		if text, err := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", command, "github.com/tutti-go/tutti/cmd/tutti").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("the tutti command: %w: %s", err, tail(string(text)))
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	all := []*starter{{name: "tutti run", command: func(ctx context.Context, ranks int) *exec.Cmd {
		return child(ctx, []string{startEnv + "=1"}, command, "run", "-n", strconv.Itoa(ranks), "--", self)
	}}}
	for _, name := range []string{"openmpi", "mpich"} {
		m := mpi{flavour: name, driver: filepath.Join(dir, name)}
		err := build(ctx, m.driver, ".c", peers.Start, "mpicc."+name)
		if err == nil {
			_, err = exec.LookPath("mpirun." + name)
		}
		if err != nil {
			fmt.Fprintf(log, "%s: missing, %v\n", name, err)
			continue
		}
		all = append(all, &starter{name: "mpirun of " + name, command: func(ctx context.Context, ranks int) *exec.Cmd {
			c := m.command(ctx, options{ranks: ranks}, "shm")
			c.Args = c.Args[:slices.Index(c.Args, m.driver)+1] // the program has no arguments
			return c
		}})
	}
	return all, nil
}

var firstLine = regexp.MustCompile(`(?m)first (\d+)\s*$`)

// run runs a job once, for its times, or else for what its ranks hold.
func (s *starter) run(ctx context.Context, ranks int, counts bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c := s.command(ctx, ranks)
	if !counts {
		c.Env = append(c.Environ(), settleEnv+"=1")
	}
	var text bytes.Buffer
	c.Stdout, c.Stderr = &text, &text
	clock := hostClock()
	begin := clock()
	if err := c.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, tail(text.String()))
	}
	end := clock()
	over := firstLine.FindAllStringSubmatch(text.String(), -1)
	if len(over) != ranks {
		return fmt.Errorf("%d of %d ranks said when they were done: %s", len(over), ranks, tail(text.String()))
	}
	var last int64
	for _, m := range over {
		at, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return err
		}
		last = max(last, at)
	}
	if !counts {
		s.held = parseHoldings(text.String())
	} else {
		s.first = append(s.first, time.Duration(last-begin))
		s.whole = append(s.whole, time.Duration(end-begin))
	}
	return nil
}

// spread is the median, and the ends.
func spread(times []time.Duration) string {
	if len(times) == 0 {
		return "-"
	}
	slices.Sort(times)
	ms := func(i int) float64 { return float64(times[i]) / float64(time.Millisecond) }
	return fmt.Sprintf("%.1f (%.1f, %.1f)", ms(len(times)/2), ms(0), ms(len(times)-1))
}

// startRank is a rank of tutti run.
func startRank() error {
	ctx := context.Background()
	c, err := tutti.Join(ctx, tutti.Config{})
	if err != nil {
		return err
	}
	sum := []int{c.Rank()}
	if err := c.AllReduce(ctx, tutti.Of(sum), tutti.Sum); err != nil {
		return err
	}
	over := hostClock()()
	if sum[0] != c.Size()*(c.Size()-1)/2 {
		return errors.New("a wrong sum")
	}
	if os.Getenv(settleEnv) != "" {
		// No rank measures while another is on its way, or has left.
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		fmt.Println(settledHoldings(c.Rank(), c.Size()))
		if err := c.Barrier(ctx); err != nil {
			return err
		}
	}
	fmt.Printf("first %d\n", over)
	return c.Close()
}
