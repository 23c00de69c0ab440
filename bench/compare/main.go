// Command compare times the collectives and messages of tutti, Open MPI, MPICH and Gloo in one
// run: same sizes, same ranks, one library after the other, in several rounds.
//
//	go run ./bench/compare --ranks 2 --transport shm,tcp
//	go run ./bench/compare --op pingpong --alloc
//	go run ./bench/compare --other ./compare.old --peers= --rounds 9
//	go run ./bench/compare start --ranks 8    the launchers, to the end of the first AllReduce
//
// It compiles the drivers of the peers from bench/peers if the machine has their
// compilers and libraries. It names the peers that it leaves out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: compare [flags]

Times tutti beside Open MPI, MPICH and Gloo. Each round runs all of them, one
after the other, over all sizes; a result is the median over the rounds of the
median time of an iteration, in microseconds. bench/peers says how an iteration
is timed. A size is the bytes of a rank's larger buffer: what AllGather and
Broadcast end with, what ReduceScatter, AllToAll, Reduce and AllReduce begin with.

Messages are exchanged by pairs of ranks, r and r^1, all pairs at the same time. A
size is the bytes of a message. A result is the mean over the pairs.
  sendrecv: both ranks send to each other and receive; the time of both.
  pingpong: half of a message's round trip.
  rate: one rank of a pair sends 64 messages that are outstanding together, the other
       receives them into different memory and acknowledges the last. The result is
       the time per message, the inverse of the messages per second of all pairs.
Up to 4 KiB, an iteration of sendrecv and pingpong is the mean of 16.

The floor is what an AllReduce cannot do without, measured in the same run; its
fastest round counts.
  shm: the ranks tell each other once, through one cache line each, that they are
       there; and each reads its buffer once and writes it once, adding in
       registers, as if what the others contribute were always in its cache.
       Ranks beyond the cores are added to the work of those that have a core.
  tcp: two threads exchange 2(n-1)/n of the buffer's bytes, n being 2, over one
       loopback connection that never blocks, and add nothing.

flags:
`

var (
	ops        = slices.Concat([]string{"allreduce", "broadcast", "allgather", "reducescatter", "alltoall", "reduce", "scan", "exscan", "barrier"}, messageOps)
	transports = []string{"shm", "tcp"}
	dtypes     = []string{"float32", "bfloat16"}
	peerNames  = []string{"openmpi", "mpich", "gloo"}
)

// options are the parsed flags.
type options struct {
	ranks      int
	sizes      []int
	op, dtype  string
	rounds     int
	transports []string
	peers      []string
	other      string
	alloc      bool
	json       bool
	stats      bool
	budget     time.Duration
	iters      int
	timeout    time.Duration
}

// main is a measuring rank or a start rank if rankEnv or startEnv is set, else the command. SIGINT
// and SIGTERM cancel the command's context, which ends the processes that it has started.
func main() {
	if os.Getenv(rankEnv) != "" {
		exit(rankMain())
		return
	}
	if os.Getenv(startEnv) != "" {
		exit(startRank())
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "start" {
		exit(startMain(ctx, os.Args[2:], os.Stdout, os.Stderr))
		return
	}
	o, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = compare(ctx, o, os.Stdout, os.Stderr)
	}
	exit(err)
}

func exit(err error) {
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// parse parses the flags; help and errors go to w. The error is flag.ErrHelp if the user asks for
// help.
func parse(args []string, w io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("compare", flag.ContinueOnError)
	f.SetOutput(w)
	f.Usage = func() {
		fmt.Fprint(w, usage)
		f.PrintDefaults()
	}
	f.IntVar(&o.ranks, "ranks", 2, "processes on each side")
	sizes := f.String("sizes", "", "bytes, separated by commas (default 4 to 256 MiB; messages: 16 to 4 MiB; other operations: 1 KiB, 64 KiB, 8 MiB)")
	f.StringVar(&o.op, "op", "allreduce", "one of "+strings.Join(ops, ", ")+"; Gloo has allreduce only")
	f.StringVar(&o.dtype, "dtype", "float32", "float32, or bfloat16 for tutti alone")
	f.IntVar(&o.rounds, "rounds", 5, "how often everybody is run")
	transport := f.String("transport", "shm", "shm, tcp or both, separated by a comma")
	peers := f.String("peers", strings.Join(peerNames, ","), "whom to compare with; empty for nobody")
	f.StringVar(&o.other, "other", "", "another build of this program, of an older commit say, to compare tutti with")
	f.BoolVar(&o.alloc, "alloc", false, "give tutti memory from Alloc instead of plain slices")
	f.BoolVar(&o.json, "json", false, "print one JSON object a line")
	f.BoolVar(&o.stats, "stats", false, "print each rank's p50, p99, p99.9 and throughput instead")
	f.DurationVar(&o.budget, "budget", 300*time.Millisecond, "time for one size in one round; large ones take at least five iterations")
	f.IntVar(&o.iters, "iters", 0, "iterations of one size in one round; 0 means what the budget allows")
	f.DurationVar(&o.timeout, "timeout", 3*time.Minute, "when to give up on one run of one of them")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q is not a flag", f.Arg(0))
	}
	o.transports, o.peers = list(*transport), list(*peers)
	if o.dtype != "float32" {
		o.peers = nil
	}
	var err error
	if o.sizes, err = o.parseSizes(*sizes); err != nil {
		return o, err
	}
	return o, o.validate()
}

// parseSizes parses the sizes. Without any it returns the operation's default
// sizes.
func (o *options) parseSizes(s string) ([]int, error) {
	switch {
	case o.op == "barrier":
		return []int{0}, nil
	case s == "" && o.op == "allreduce":
		s = "4,64,1024,16384,65536,1048576,8388608,67108864,268435456"
	case s == "" && isMessage(o.op):
		s = "16,256,1024,4096,16384,65536,524288,1048576,4194304"
	case s == "":
		s = "1024,65536,8388608"
	}
	var sizes []int
	for _, field := range list(s) {
		n, err := strconv.Atoi(field)
		if err != nil || n < 4 || n%4 != 0 || n > 1<<32 {
			return nil, fmt.Errorf("the size %q is not a multiple of 4 up to 4 GiB", field)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// validate returns an error for options that cannot be measured, or whose results could not be
// checked.
func (o *options) validate() error {
	among := func(what string, all []string, chosen ...string) error {
		for _, c := range chosen {
			if !slices.Contains(all, c) {
				return fmt.Errorf("the %s %q is none of %s", what, c, strings.Join(all, ", "))
			}
		}
		return nil
	}
	switch {
	case o.ranks < 2:
		return fmt.Errorf("%d ranks; there must be two at least", o.ranks)
	case isMessage(o.op) && o.ranks%2 != 0:
		return fmt.Errorf("%d ranks; messages are measured between the ranks of pairs", o.ranks)
	case o.op == "rate" && slices.ContainsFunc(o.sizes, func(n int) bool { return n > maxRateSize }):
		return fmt.Errorf("messages of rate have up to %d MiB, as each of a window has memory of its own", maxRateSize>>20)
	case o.dtype == "bfloat16" && o.ranks > 12:
		return errors.New("bfloat16 cannot hold the sums of more than 12 ranks exactly, so they could not be checked")
	case o.rounds < 1 || o.iters < 0 || o.budget <= 0 || o.timeout <= 0:
		return errors.New("rounds, budget and timeout must be positive, and iters not negative")
	case o.alloc && slices.Contains(o.transports, "tcp"):
		return errors.New("memory from Alloc is for shared memory only")
	}
	return errors.Join(among("operation", ops, o.op), among("transport", transports, o.transports...),
		among("dtype", dtypes, o.dtype), among("peer", peerNames, o.peers...))
}

// list splits at commas; the empty string is the empty list.
func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
