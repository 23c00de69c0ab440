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

	"github.com/tutti-go/tutti/internal/cliflag"
	"github.com/tutti-go/tutti/internal/envvar"
	"github.com/tutti-go/tutti/internal/launchenv"
	"github.com/tutti-go/tutti/launch"
)

const runHelp = `Usage: tutti run [flags] -- program [arguments]

Starts the ranks of a job on this host, one process per rank, and runs the store
for their rendezvous: a rank calls tutti.Join(ctx, tutti.Config{}). Each line of
output starts with the rank number. When a rank fails, all ranks are ended.

  tutti run -n 4 -- ./prog                       four ranks on this host
  tutti run --torch -n 2 -- python train.py      instead of torchrun
  tutti run --elastic 2:4 -- ./prog              at least two of four ranks

On two hosts, the first and the second:

  tutti run --nodes 2 --node 0 --addr host0:29400 -n 4 -- ./prog
  tutti run --nodes 2 --node 1 --addr host0:29400 -n 4 -- ./prog

Several hosts need a common secret in TUTTI_SECRET; create it with
openssl rand -hex 32. Under Slurm (srun, one task per host) and in pods of a
Kubernetes Job, --nodes, --node and --addr are taken from the environment.

With --elastic min:max the job has max ranks on all its hosts together. It
continues without lost ranks as long as min ranks remain: the remaining ranks
call Comm.Shrink after an error for which tutti.CanShrink is true. Each lost
rank is replaced by a new process, which joins when the others call
Comm.Grow(ctx, 0). A whole host may be lost, except node 0, which runs the
store: the same tutti run command, on that or another host, replaces it in the
running job. -n is the number of the max ranks on this host;
without it max is divided equally. The exit code is 0 if all remaining ranks
succeed. Below min ranks it is the code of the first rank that was lost and not
replaced, or 1 if that was a host.

  tutti run --elastic 4:6 --nodes 3 --node 2 --addr host0:29400 -- ./prog

Exit codes: 0 all ranks succeeded; the code of the first rank that failed; 128
plus the signal number if a signal killed that rank or stopped tutti run; 1 the
job could not be started, or a host was lost; 2 wrong flags.
Manual: docs/guide/deploying.md, docs/guide/staying-alive.md.

Flags:
`

// options are the values of the flags of tutti run.
type options struct {
	launch.Config
	gpus, color string
	elastic     string
	stdin       bool
}

// runFlags returns the flags. The environment may set their defaults.
func runFlags(o *options, hosts launchenv.Hosts, getenv func(string) string) *flag.FlagSet {
	f := flag.NewFlagSet("tutti run", flag.ContinueOnError)
	f.IntVar(&o.Ranks, "n", defaultRanks(getenv), "ranks on this host")
	f.IntVar(&o.Nodes, "nodes", hosts.Nodes, "hosts of the job")
	f.IntVar(&o.Node, "node", hosts.Node, "number of this host, from 0")
	f.StringVar(&o.Addr, "addr", hosts.Addr, "address of the store on node 0, `host:port`")
	f.DurationVar(&o.JoinTime, "join-time", 5*time.Minute, "how long to wait for the other hosts at the start")
	f.DurationVar(&o.LostTime, "lost-time", 15*time.Second, "time without heartbeats after which another host counts as lost")
	f.BoolVar(&o.Torch, "torch", false, "open a store for PyTorch, as torchrun does; it has no authentication")
	f.StringVar(&o.TorchAddr, "torch-addr", "", "address of the store for PyTorch on node 0, `host:port` (default a loopback port)")
	f.StringVar(&o.gpus, "gpus", "local", "how a rank finds its GPU: local (LOCAL_RANK is its index) or visible (CUDA_VISIBLE_DEVICES shows only one)")
	f.BoolVar(&o.Bind, "bind", false, "bind each rank to its own share of the CPUs")
	f.StringVar(&o.LogDir, "log-dir", "", "also write each rank's output to files in this `folder`")
	f.StringVar(&o.FlightDir, "flight-dir", "", "write the ranks' flight dumps to this `folder` when the job fails or is stopped, for tutti inspect")
	f.StringVar(&o.color, "color", "auto", "colour the ranks: auto, always or never")
	f.BoolVar(&o.stdin, "stdin", false, "forward standard input to rank 0")
	f.IntVar(&o.Restarts, "restarts", 0, "how often to start all ranks again after a failure")
	f.StringVar(&o.elastic, "elastic", "", "continue when ranks or hosts are lost, and replace them: `min:max` ranks of the whole job")
	f.IntVar(&o.Replacements, "replacements", 0, "how many lost ranks to replace on this host, with --elastic (default three times its ranks)")
	f.DurationVar(&o.Grace, "grace", 5*time.Second, "time between SIGTERM and SIGKILL when ranks are ended")
	return f
}

// parseRun parses the flags and the environment. It prints nothing; the error is flag.ErrHelp if
// the user asks for help.
func parseRun(args []string, getenv func(string) string) (*options, error) {
	o := new(options)
	hosts, wrong := launchenv.FindHosts(getenv)
	f := runFlags(o, hosts, getenv)
	err := cliflag.Parse(f, args)
	if err == nil && wrong == "" {
		wrong = o.setElastic(f)
	}
	o.Command, o.Secret = f.Args(), getenv("TUTTI_SECRET")
	badVariable := envvar.Check(getenv) // every rank would refuse it
	switch {
	case err != nil:
		return nil, err
	case wrong != "":
		err = errors.New(wrong)
	case badVariable != nil:
		err = badVariable
	case len(o.Command) == 0:
		err = errors.New("no program to run; see tutti run -h")
	case o.Ranks < 1:
		err = fmt.Errorf("-n is %d; it must be 1 or more", o.Ranks)
	case o.Restarts < 0:
		err = fmt.Errorf("--restarts is %d; it must be 0 or more", o.Restarts)
	case o.Grace < 0:
		err = fmt.Errorf("--grace is %v; it must be 0 or more", o.Grace)
	case o.gpus != "local" && o.gpus != "visible":
		err = fmt.Errorf("--gpus is %q; use local or visible", o.gpus)
	case o.color != "auto" && o.color != "always" && o.color != "never":
		err = fmt.Errorf("--color is %q; use auto, always or never", o.color)
	}
	if err != nil {
		return nil, err
	}
	o.Visible = o.gpus == "visible"
	return o, nil
}

// setElastic parses min:max, the bounds of the number of ranks in the whole job. It
// returns the problem, or "".
func (o *options) setElastic(f *flag.FlagSet) string {
	isSet := func(name string) (set bool) {
		f.Visit(func(g *flag.Flag) { set = set || g.Name == name })
		return set
	}
	if o.elastic == "" {
		if isSet("replacements") {
			return "--replacements is for --elastic; without that the loss of a rank ends the job"
		}
		return ""
	}
	low, high, _ := strings.Cut(o.elastic, ":")
	least, err1 := strconv.Atoi(low)
	most, err2 := strconv.Atoi(high)
	switch {
	case err1 != nil || err2 != nil || least < 1 || most < least:
		return fmt.Sprintf("--elastic is %q; use min:max, two numbers of ranks, such as 2:4", o.elastic)
	case o.Nodes > 1 && isSet("n") && o.Ranks > most:
		return fmt.Sprintf("-n is %d, but --elastic %s says that the whole job has %d ranks", o.Ranks, o.elastic, most)
	case o.Nodes > 1 && !isSet("n") && most%o.Nodes != 0:
		return fmt.Sprintf("--elastic is %s, and %d ranks cannot be divided by %d hosts; set the ranks of this host with -n", o.elastic, most, o.Nodes)
	case o.Nodes <= 1 && isSet("n") && o.Ranks != most:
		return fmt.Sprintf("-n is %d, but --elastic %s starts %d ranks; leave -n out", o.Ranks, o.elastic, most)
	case isSet("replacements") && o.Replacements == 0:
		o.Replacements = -1 // zero means the default in launch.Config
	}
	o.Min, o.Max = least, most
	if !isSet("n") {
		o.Ranks = most / max(o.Nodes, 1)
	}
	return ""
}

// defaultRanks returns the number of ranks that a training operator or Slurm sets, or
// 1.
func defaultRanks(getenv func(string) string) int {
	for _, name := range []string{"PET_NPROC_PER_NODE", "SLURM_GPUS_ON_NODE"} {
		if n, err := strconv.Atoi(getenv(name)); err == nil && n > 0 {
			return n
		}
	}
	return 1
}

// run is the first launcher process, or the leader, which the watchdog starts with the same command
// line. It returns the exit code. Signals do not end the process: Guard forwards them to the
// leader, and launch.Run ends the ranks.
func run(args []string) int {
	o, err := parseRun(args, os.Getenv)
	if err != nil {
		return helpOrError(runFlags(new(options), launchenv.Hosts{}, os.Getenv), runHelp, err, os.Stdout, os.Stderr)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	// A broken output pipe must not kill the launcher before it has ended the ranks.
	// Ranks do not inherit this handler.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	lifeline, err := launch.Lifeline()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tutti run:", err)
		return 2
	}
	if lifeline != nil {
		o.Signals, o.Lifeline = signals, lifeline
		return runLeader(o)
	}
	return runGuard(o, args, signals)
}

// runWatchdog is the work of the watchdog process. was reports whether this process is
// the watchdog.
func runWatchdog() (code int, was bool) {
	code, was, err := launch.Watchdog()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tutti run:", err)
	}
	return code, was
}

// runGuard is the work of the first process: it starts the watchdog and returns the leader's exit
// code. With -stdin in a terminal, a goroutine copies what is typed to the leader; it ends with the
// process.
func runGuard(o *options, args []string, signals <-chan os.Signal) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tutti run:", err)
		return 1
	}
	cmd := exec.Command(self, append([]string{"run"}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	switch {
	case !o.stdin:
	case !isTerminal(os.Stdin):
		cmd.Stdin = os.Stdin
	default:
		// Only this process belongs to the terminal's session. If it is in the
		// background, reading stops this process and not the ranks.
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

// runLeader is the work of the leader: it runs the job and prints the report. It returns the job's
// exit code, or 1 if the job could not be started.
func runLeader(o *options) int {
	if o.stdin {
		o.Stdin = os.Stdin
	}
	o.Color = o.color == "always" || o.color == "auto" && isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == ""
	if o.Torch {
		fmt.Fprintln(os.Stderr, "tutti: the store for PyTorch has no authentication: any process that reaches its port can read and change it")
	}
	report, err := launch.Run(context.Background(), o.Config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tutti run:", err)
		return 1
	}
	fmt.Fprint(os.Stderr, report)
	return report.Code
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
