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
	"sync"
	"time"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/bench/peers"
	"github.com/tutti-go/tutti/internal/envvar"
	"github.com/tutti-go/tutti/internal/netns"
)

// startEnv makes this program a rank that runs one AllReduce.
const startEnv = "TUTTI_COMPARE_START"

// settleEnv makes such a rank wait until its holdings are constant before it prints
// them.
const settleEnv = "TUTTI_COMPARE_SETTLE"

// A starter is a launcher with its program.
type starter struct {
	name    string
	command func(ctx context.Context, ranks int) []*exec.Cmd // one command for each host
	first   []time.Duration                                  // from the launcher's start to the end of the last rank's AllReduce
	whole   []time.Duration                                  // until the launcher exits
	early   []time.Duration                                  // by rank: duration of Close right after the first AllReduce
	late    []time.Duration                                  // by rank: duration of Close when the ranks have settled
	held    []holdings                                       // by rank, when settled; empty: the ranks do not print them
}

// startMain times launchers in turn: tutti run, and mpirun where it is installed. It writes one
// table for each number of ranks. It returns the first error; the tables before it are already
// written.
func startMain(ctx context.Context, args []string, out, log io.Writer) error {
	f := flag.NewFlagSet("compare start", flag.ContinueOnError)
	f.SetOutput(log)
	ranks := f.String("ranks", "8", "ranks of each job; several numbers, with commas between them, are a table of each")
	rounds := f.Int("rounds", 10, "how often each launcher is run, and once more each time to look at ranks that have settled")
	command := f.String("tutti", "", "the built tutti command; empty: go build builds it")
	hosts := f.Int("hosts", 1, "hosts of each job: network namespaces, which need root and iproute2; more than one are for tutti run alone, and divide the ranks")
	if err := f.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "compare-start")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if *hosts < 1 {
		return fmt.Errorf("--hosts: %d is no number of hosts", *hosts)
	}
	tutti, err := tuttiCommand(ctx, dir, *command)
	if err != nil {
		return err
	}
	var all []*starter
	if *hosts == 1 {
		all, err = starters(ctx, dir, tutti, log)
	} else {
		var n *netns.Network
		if n, err = netns.New(1, *hosts, false); err == nil {
			defer func() { _ = n.Close() }()
			all, err = hostStarters(n, tutti, *hosts)
		}
	}
	if err != nil {
		return err
	}
	for text := range strings.SplitSeq(*ranks, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n%*hosts != 0 {
			return fmt.Errorf("--ranks: %q is no number of ranks for %d hosts", text, *hosts)
		}
		if err := startTable(ctx, all, n, *hosts, *rounds, out); err != nil {
			return err
		}
	}
	return nil
}

// startTable times the launchers with one number of ranks, replaces their earlier results, and
// writes a table. The first launcher or rank that fails ends it without a table.
func startTable(ctx context.Context, all []*starter, ranks, hosts, rounds int, out io.Writer) error {
	for _, s := range all {
		s.first, s.whole, s.early, s.late, s.held = nil, nil, nil, nil, nil
	}
	for round := range rounds {
		for i := range all {
			s := all[(i+round)%len(all)] // no launcher is always first
			if err := errors.Join(s.run(ctx, ranks, true), s.run(ctx, ranks, false)); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	where := "this host"
	if hosts > 1 {
		where = fmt.Sprintf("%d hosts (network namespaces)", hosts)
	}
	fmt.Fprintf(out, "%d ranks on %s, median of %d rounds in turns (fastest, slowest), in ms from the launcher's start; "+
		"in other runs, when the ranks have settled, the median of the ranks (the most of one)\n\n", ranks, where, rounds)
	fmt.Fprintln(out, "| launcher | to the end of the first AllReduce | to the launcher's end | a rank's Close | Close when settled | "+
		"mappings of memory files | all mappings | descriptors | resident, MiB |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, s := range all {
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s |\n", s.name, spread(s.first), spread(s.whole), spread(s.early), spread(s.late), holdingsText(s.held))
	}
	fmt.Fprintln(out)
	return nil
}

// tuttiCommand returns the path of the tutti command, and builds it if command is
// empty.
func tuttiCommand(ctx context.Context, dir, command string) (string, error) {
	if command != "" {
		return command, nil
	}
	command = filepath.Join(dir, "tutti")
	if text, err := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", command, "github.com/tutti-go/tutti/cmd/tutti").CombinedOutput(); err != nil {
		return "", fmt.Errorf("the tutti command: %w: %s", err, tail(string(text)))
	}
	return command, nil
}

// hostStarters returns the only launcher of jobs on several hosts: tutti run, started once in
// each host's network namespace.
func hostStarters(n *netns.Network, tutti string, hosts int) ([]*starter, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return []*starter{{name: "tutti run", command: func(ctx context.Context, ranks int) (list []*exec.Cmd) {
		for h := range hosts {
			c := n.Command(ctx, h, tutti, "run", "--nodes", strconv.Itoa(hosts), "--node", strconv.Itoa(h),
				"--addr", n.Addr(0)+":29400", "-n", strconv.Itoa(ranks/hosts), "--", self)
			c.Env = append(c.Environ(), startEnv+"=1", "TUTTI_SECRET="+startSecret)
			list = append(list, c)
		}
		return list
	}}}, nil
}

// startSecret is the secret of jobs on several hosts, which are network namespaces.
const startSecret = "compare start: a secret of some length"

// starters returns the launchers that the machine has. A missing MPI is logged and left out.
func starters(ctx context.Context, dir, tutti string, log io.Writer) ([]*starter, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	all := []*starter{{name: "tutti run", command: func(ctx context.Context, ranks int) []*exec.Cmd {
		return []*exec.Cmd{child(ctx, []string{startEnv + "=1"}, tutti, "run", "-n", strconv.Itoa(ranks), "--", self)}
	}}}
	for _, name := range []string{"openmpi", "mpich"} {
		m, err := buildMPI(ctx, name, filepath.Join(dir, name), peers.Start)
		if err != nil {
			fmt.Fprintf(log, "%s: missing, %v\n", name, err)
			continue
		}
		all = append(all, &starter{name: "mpirun of " + name, command: func(ctx context.Context, ranks int) []*exec.Cmd {
			c := m.command(ctx, options{ranks: ranks}, "shm")
			c.Args = c.Args[:slices.Index(c.Args, m.driver)+1] // the program has no arguments
			return []*exec.Cmd{c}
		}})
	}
	return all, nil
}

var firstLine = regexp.MustCompile(`(?m)first (\d+)\s*$`)

var closeLine = regexp.MustCompile(`(?m)closed in (\d+) ns\s*$`)

// run runs a job once: for the time until its first AllReduce completes, or with settle for the
// holdings of its ranks. It adds the results to s. It returns an error if a process fails, if the
// job takes longer than a minute, or if a rank does not print its time.
func (s *starter) run(ctx context.Context, ranks int, settle bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var text lockedBuffer
	commands := s.command(ctx, ranks)
	for _, c := range commands {
		if settle {
			c.Env = append(c.Environ(), settleEnv+"=1")
		}
		c.Stdout, c.Stderr = &text, &text
	}
	clock := hostClock()
	begin := clock()
	if err := runTogether(commands); err != nil {
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
	closes := &s.early
	if settle {
		closes = &s.late
		s.held = append(s.held, parseHoldings(text.String())...)
	} else {
		s.first = append(s.first, time.Duration(last-begin))
		s.whole = append(s.whole, time.Duration(end-begin))
	}
	for _, m := range closeLine.FindAllStringSubmatch(text.String(), -1) {
		ns, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return err
		}
		*closes = append(*closes, time.Duration(ns))
	}
	return nil
}

// runTogether runs commands concurrently, and returns when all have exited, with all their errors.
// If one cannot be started, it kills the others. Their contexts bound the wait.
func runTogether(commands []*exec.Cmd) (err error) {
	for i, c := range commands {
		if err = c.Start(); err != nil {
			for _, started := range commands[:i] {
				_ = started.Process.Kill()
			}
			commands = commands[:i]
			break
		}
	}
	for _, c := range commands {
		err = errors.Join(err, c.Wait())
	}
	return err
}

// A lockedBuffer collects the output of several commands.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// spread formats the median, the minimum and the maximum.
func spread(times []time.Duration) string {
	if len(times) == 0 {
		return "-"
	}
	slices.Sort(times)
	ms := func(i int) float64 { return float64(times[i]) / float64(time.Millisecond) }
	return fmt.Sprintf("%.1f (%.1f, %.1f)", ms(len(times)/2), ms(0), ms(len(times)-1))
}

// startRank is a rank of tutti run. It runs one AllReduce, and prints the time on the host's clock
// at which it completed and the duration of Close. With settleEnv it also prints its holdings,
// between two Barriers. After an error the process exits without Close,
// so the launcher fails too.
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
	if settle, err := envvar.Bool(os.Getenv, settleEnv); err != nil {
		return err
	} else if settle {
		// No rank measures while another rank joins or has left.
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		fmt.Println(settledHoldings(c.Rank(), c.Size()))
		if err := c.Barrier(ctx); err != nil {
			return err
		}
	}
	fmt.Printf("first %d\n", over)
	begin := time.Now()
	if err := c.Close(); err != nil {
		return err
	}
	fmt.Printf("closed in %d ns\n", time.Since(begin))
	return nil
}
