package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/place"
	"github.com/tutti-go/tutti/internal/usage"
	"github.com/tutti-go/tutti/launch"
)

const runHelp = `Usage: tutti run [flags] -- program [arguments]

Starts the ranks of a job on this host, each a process, and hosts the store by
which they find each other: tutti.Join(ctx, tutti.Config{}) is all that a rank
needs. Lines of output begin with the rank. When one fails, all are ended.

  tutti run -n 4 -- ./prog                       four ranks on this host
  tutti run --torch -n 2 -- python train.py      instead of torchrun
  tutti run --elastic 2:4 -- ./prog              while two of four live

On two hosts, the first and the second:

  tutti run --nodes 2 --node 0 --addr host0:29400 -n 4 -- ./prog
  tutti run --nodes 2 --node 1 --addr host0:29400 -n 4 -- ./prog

Several hosts share a secret, in TUTTI_SECRET: openssl rand -hex 32 makes one.
Under Slurm (srun, one task per host) and in pods of a Kubernetes Job, --nodes,
--node and --addr are found in the environment.

With --elastic min:max the job has max ranks, on all its hosts together, and the
loss of some does not end it as long as min of them live: the others go on with
Comm.Shrink. Another process is started in the place of each, and joins when the
others call Comm.Grow(ctx, 0). A whole host may be lost, except node 0, which
serves the store: the same tutti run line, there or on another host, takes its
place in the running job. -n says how many of the max ranks are on this host;
without it the hosts have the same number each. The code is 0 if the ranks that
are there at the end end well; below min it is that of the first rank that was
lost and not replaced, and 1 if that was a host.

  tutti run --elastic 4:6 --nodes 3 --node 2 --addr host0:29400 -- ./prog

Exit codes: 0 all ranks ended well; that of the first rank that failed, 128 and
the signal if it was killed by one, or if tutti run itself was stopped; 1 the
job could not be started, or a host was lost; 2 wrong flags.
Manual: docs/run.md.

Flags:
`

// options are what the flags of tutti run say.
type options struct {
	launch.Config
	gpus, color string
	elastic     string
	stdin       bool
}

// runFlags are the flags, whose defaults the environment may say.
func runFlags(o *options, hosts place.Hosts, getenv func(string) string) *flag.FlagSet {
	f := flag.NewFlagSet("tutti run", flag.ContinueOnError)
	f.IntVar(&o.Ranks, "n", defaultRanks(getenv), "ranks on this host")
	f.IntVar(&o.Nodes, "nodes", hosts.Nodes, "hosts of the job")
	f.IntVar(&o.Node, "node", hosts.Node, "number of this host, from 0")
	f.StringVar(&o.Addr, "addr", hosts.Addr, "where node 0 hosts the store, `host:port`")
	f.DurationVar(&o.JoinTime, "join-time", 5*time.Minute, "how long the other hosts may take to come")
	f.DurationVar(&o.LostTime, "lost-time", 15*time.Second, "how long another host may be silent before it counts as lost")
	f.BoolVar(&o.Torch, "torch", false, "open a plain store for PyTorch, as torchrun does; it has no authentication")
	f.StringVar(&o.TorchAddr, "torch-addr", "", "where node 0 opens the plain store, `host:port` (default on the loopback)")
	f.StringVar(&o.gpus, "gpus", "local", "how a rank finds its device: local (LOCAL_RANK says which) or visible (CUDA_VISIBLE_DEVICES shows one)")
	f.BoolVar(&o.Bind, "bind", false, "divide the processors among the ranks")
	f.StringVar(&o.LogDir, "log-dir", "", "write each rank's output to files in this `folder` too")
	f.StringVar(&o.FlightDir, "flight-dir", "", "have ranks leave dumps in this `folder` when the job fails or is stopped, for tutti inspect")
	f.StringVar(&o.color, "color", "auto", "colour the ranks: auto, always or never")
	f.BoolVar(&o.stdin, "stdin", false, "pass standard input on to rank 0")
	f.IntVar(&o.Restarts, "restarts", 0, "how often to start all ranks again after a failure")
	f.StringVar(&o.elastic, "elastic", "", "go on when ranks or hosts are lost, and replace them: `min:max` ranks of the whole job")
	f.IntVar(&o.Replacements, "replacements", 0, "how many lost ranks to replace on this host, with --elastic (default three times its ranks)")
	f.DurationVar(&o.Grace, "grace", 5*time.Second, "how long ranks have to end before they are killed")
	return f
}

// parse reads the flags, and prints nothing.
func parse(args []string, getenv func(string) string) (*options, error) {
	o := new(options)
	hosts, wrong := place.FindHosts(getenv)
	f := runFlags(o, hosts, getenv)
	err := usage.Parse(f, args)
	if err == nil && wrong == "" {
		wrong = o.setElastic(f)
	}
	o.Command, o.Secret = f.Args(), getenv("TUTTI_SECRET")
	switch {
	case err != nil:
		return nil, err
	case wrong != "":
		err = errors.New(wrong)
	case len(o.Command) == 0:
		err = errors.New("no program to run; tutti run -h explains")
	case o.Ranks < 1:
		err = fmt.Errorf("-n is %d; it must be 1 or more", o.Ranks)
	case o.gpus != "local" && o.gpus != "visible":
		err = fmt.Errorf("--gpus is %q; it is local or visible", o.gpus)
	case o.color != "auto" && o.color != "always" && o.color != "never":
		err = fmt.Errorf("--color is %q; it is auto, always or never", o.color)
	}
	if err != nil {
		return nil, err
	}
	o.Visible = o.gpus == "visible"
	return o, nil
}

// setElastic reads min:max, which is how many ranks the whole job has. It returns
// what is wrong.
func (o *options) setElastic(f *flag.FlagSet) string {
	given := func(name string) (set bool) {
		f.Visit(func(g *flag.Flag) { set = set || g.Name == name })
		return set
	}
	if o.elastic == "" {
		if given("replacements") {
			return "-replacements is for -elastic; without that the loss of a rank ends the job"
		}
		return ""
	}
	low, high, _ := strings.Cut(o.elastic, ":")
	least, err1 := strconv.Atoi(low)
	most, err2 := strconv.Atoi(high)
	switch {
	case err1 != nil || err2 != nil || least < 1 || most < least:
		return fmt.Sprintf("-elastic is %q; it is min:max, two numbers of ranks, such as 2:4", o.elastic)
	case o.Nodes > 1 && given("n") && o.Ranks > most:
		return fmt.Sprintf("-n is %d, but -elastic %s says that the whole job has %d ranks", o.Ranks, o.elastic, most)
	case o.Nodes > 1 && !given("n") && most%o.Nodes != 0:
		return fmt.Sprintf("-elastic is %s, and %d ranks cannot be divided by %d hosts; say with -n how many this host has", o.elastic, most, o.Nodes)
	case o.Nodes <= 1 && given("n") && o.Ranks != most:
		return fmt.Sprintf("-n is %d, but -elastic %s starts %d ranks; leave -n out", o.Ranks, o.elastic, most)
	case given("replacements") && o.Replacements == 0:
		o.Replacements = -1 // zero means the default there
	}
	o.Min, o.Max = least, most
	if !given("n") {
		o.Ranks = most / max(o.Nodes, 1)
	}
	return ""
}

// defaultRanks is what a training operator or Slurm says of this host, or one.
func defaultRanks(getenv func(string) string) int {
	for _, name := range []string{"PET_NPROC_PER_NODE", "SLURM_GPUS_ON_NODE"} {
		if n, err := strconv.Atoi(getenv(name)); err == nil && n > 0 {
			return n
		}
	}
	return 1
}

// run is the first launcher process, and, called again by its watchdog, the leader.
func run(args []string) int {
	o, err := parse(args, os.Getenv)
	if err != nil {
		return ended(runFlags(new(options), place.Hosts{}, os.Getenv), runHelp, err, os.Stdout, os.Stderr)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	// A reader of the output that has gone must not kill the launcher before it
	// has ended the ranks. Ranks do not inherit this.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if lifeline := launch.Lifeline(); lifeline != nil {
		o.Signals, o.Lifeline = signals, lifeline
		return lead(o)
	}
	return guard(o, args, signals)
}

// watchdog is what the process between the first and the leader does. It reports
// whether this is that process.
func watchdog() (code int, was bool) {
	code, was, err := launch.Watchdog()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tutti run:", err)
	}
	return code, was
}

// guard is what the first process does.
func guard(o *options, args []string, signals <-chan os.Signal) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tutti run:", err)
		return 1
	}
	cmd := exec.Command(self, append([]string{"run"}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	switch {
	case !o.stdin:
	case !terminal(os.Stdin):
		cmd.Stdin = os.Stdin
	default:
		// Only this process belongs to the terminal. If it is in the background, the
		// terminal stops it when it reads, and not the ranks.
		in, err := cmd.StdinPipe()
		if err != nil {
			fmt.Fprintln(os.Stderr, "tutti run:", err)
			return 1
		}
		go func() {
			_, _ = io.Copy(in, os.Stdin)
			in.Close()
		}()
	}
	code, err := launch.Guard(cmd, signals)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tutti run:", err)
	}
	return code
}

// lead is what the leader does.
func lead(o *options) int {
	if o.stdin {
		o.Stdin = os.Stdin
	}
	o.Color = o.color == "always" || o.color == "auto" && terminal(os.Stdout) && os.Getenv("NO_COLOR") == ""
	if o.Torch {
		fmt.Fprintln(os.Stderr, "tutti: a plain store for PyTorch is open; whoever reaches its port can read and change it")
	}
	report, err := launch.Run(context.Background(), o.Config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tutti run:", err)
		return 1
	}
	fmt.Fprint(os.Stderr, report)
	return report.Code
}

func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
