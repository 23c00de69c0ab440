package bench

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-go/tutti/internal/cliflag"
)

// Help is the output of `tutti bench -h` before the flags.
const Help = `Usage: tutti bench [flags]

Measures collectives and checks every result. Without flags it starts as many
ranks on this machine as there are cores, two at least, each a process; under
tutti run, torchrun, mpirun or srun it is one of their ranks.

  tutti bench                                   all operations, six sizes each
  tutti bench --op allreduce -b 8 -e 128M -f 2  as nccl-tests would
  tutti bench --engine tcp -n 4                 by TCP, on this machine
  tutti bench --engine nccl -n 8                on GPUs
  tutti bench --json >new.json                  one object a line
  tutti bench --against old.json                what has changed since
  tutti bench --html report.html --pairs        a page with charts; slow links
  tutti run --nodes 2 --node 0 --addr host0:29400 -n 8 -- tutti bench

Times are those of the slowest rank. Bandwidths are in GB/s (1e9), the bus's as
nccl-tests defines it. Exit codes: 0 all is right, 1 it could not be measured,
2 wrong flags, 3 a result was wrong, 128 and the signal if it was stopped.

Flags:
`

// Options are the parsed flags.
type Options struct {
	Plan
	JSON    bool
	HTML    string
	Against string
	Bind    bool

	ranksSet, sizesSet, bindSet bool
	ops, dtypes, reduces        string
	from, to                    string
	factor                      int
	note                        string // about devices that auto cannot use
}

// NewFlags returns the flags of tutti bench, for Parse and for completion.
func NewFlags(o *Options) *flag.FlagSet {
	f := flag.NewFlagSet("tutti bench", flag.ContinueOnError)
	f.IntVar(&o.Ranks, "n", 0, "`ranks` to start (default: one for each core, or GPU; two at least)")
	f.BoolVar(&o.Bind, "bind", true, "divide the cores among the ranks, if there is one for each; --bind=false leaves that to the system; on GPUs it must be given")
	f.StringVar(&o.ops, "op", "all", "`operations`, separated by commas: all, "+strings.Join(OpNames(), ", "))
	f.StringVar(&o.from, "b", "16", "smallest `size` in bytes, as in 64K: of a rank's larger buffer")
	f.StringVar(&o.to, "e", "16M", "largest `size`")
	f.IntVar(&o.factor, "f", 16, "`factor` between sizes")
	f.StringVar(&o.dtypes, "dtype", "float32", "element `types`: all, "+strings.Join(DTypeNames(), ", "))
	f.StringVar(&o.reduces, "reduce", "sum", "`reductions`: all, "+strings.Join(ReduceNames(), ", "))
	f.StringVar(&o.Engine, "engine", Auto, "`engine`: "+strings.Join(Engines, ", "))
	f.IntVar(&o.Iters, "iters", 0, "iterations of a point (default: what fits in the budget)")
	f.IntVar(&o.Warmup, "warmup", 5, "iterations before that")
	f.DurationVar(&o.Budget, "budget", 150*time.Millisecond, "time for a point, if iters does not say; large sizes take longer")
	f.IntVar(&o.Batch, "batch", 1, "`operations` that are started together; times are of one")
	f.IntVar(&o.Ahead, "ahead", 0, "`operations` that are started before the first is waited for; times are of one (default: 1, and 256 with engine nccl)")
	f.BoolVar(&o.Alloc, "alloc", false, "use memory that all ranks of a host see: no copies")
	f.BoolVar(&o.InPlace, "in-place", false, "let results replace what they are made of")
	f.DurationVar(&o.Duration, "duration", 0, "go on for so long, pass after pass, checking all the time")
	f.BoolVar(&o.Pairs, "pairs", false, "measure every pair of ranks too, both ways, and name those that stand out")
	f.BoolVar(&o.JSON, "json", false, "print results as one JSON object a line, and nothing else")
	f.StringVar(&o.HTML, "html", "", "write a page with charts to this `file`")
	f.StringVar(&o.Against, "against", "", "compare with this `file`: saved output of --json, or a page")
	return f
}

// Parse parses the flags. It prints nothing; the error may be flag.ErrHelp.
func Parse(args []string) (*Options, error) {
	o := new(Options)
	f := NewFlags(o)
	if err := cliflag.Parse(f, args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a flag; tutti bench -h lists them", f.Arg(0))
	}
	f.Visit(func(g *flag.Flag) {
		o.ranksSet = o.ranksSet || g.Name == "n"
		o.sizesSet = o.sizesSet || g.Name == "e"
		o.bindSet = o.bindSet || g.Name == "bind"
	})
	return o, o.resolve()
}

// resolve converts the flags to lists. It returns an error for the first flag with an invalid
// value.
func (o *Options) resolve() error {
	var err error
	if o.Ops, err = parseList("operation", o.ops, OpNames()); err != nil {
		return err
	}
	if o.DTypes, err = parseList("type", o.dtypes, DTypeNames()); err != nil {
		return err
	}
	if o.Reduces, err = parseList("reduction", o.reduces, ReduceNames()); err != nil {
		return err
	}
	if !slices.Contains(Engines, o.Engine) {
		return fmt.Errorf("there is no engine %q: %s", o.Engine, strings.Join(Engines, ", "))
	}
	from, err := parseBytes(o.from)
	if err != nil {
		return fmt.Errorf("-b: %w", err)
	}
	to, err := parseBytes(o.to)
	if err != nil {
		return fmt.Errorf("-e: %w", err)
	}
	switch {
	case from < 1 || to < from:
		return fmt.Errorf("sizes from %s to %s; the first must be 1 or more, and not above the second", o.from, o.to)
	case o.factor < 2 && to > from:
		return fmt.Errorf("-f is %d; it must be 2 or more", o.factor)
	case o.Iters == 0 && o.Budget <= 0:
		return fmt.Errorf("--budget is %v; it must be more than nothing", o.Budget)
	case o.ranksSet && o.Ranks < 1:
		return fmt.Errorf("-n is %d; it must be 1 or more", o.Ranks)
	}
	o.Sizes = nil
	for n := from; n <= to; n *= max(o.factor, 2) {
		o.Sizes = append(o.Sizes, n)
	}
	return nil
}

// parseList reads a list of names; "all" means all of them. An unknown name or an empty list is an
// error.
func parseList(what, text string, all []string) ([]string, error) {
	if text == "all" {
		return all, nil
	}
	list := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	for _, name := range list {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("there is no %s %q: all, %s", what, name, strings.Join(all, ", "))
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no %s: all, %s", what, strings.Join(all, ", "))
	}
	return list, nil
}

// setDefaults sets the number of ranks for a known engine, and limits the default sizes to the
// available memory. It returns an error if the plan is invalid or does not fit into memory.
func (o *Options) setDefaults(devices int) error {
	cores := runtime.GOMAXPROCS(0) // of the machine or of the control group
	switch {
	case o.ranksSet:
	case o.device():
		o.Ranks = max(devices, 2)
	case o.Engine == Hier:
		o.Ranks = max(cores, 4)
	default:
		o.Ranks = max(cores, 2)
	}
	if free := freeMemory(); !o.sizesSet && !o.device() && free > 0 {
		o.Sizes = slices.DeleteFunc(o.Sizes, func(n int) bool { return n > 1024 && 2*n*o.Batch*o.Ranks > free/4 })
	}
	if err := o.validate(); err != nil {
		return err
	}
	return o.checkMemory(freeMemory())
}

// checkMemory refuses a plan that does not fit into this host's memory, before the
// out-of-memory killer ends a process. A rank has two buffers, on GPUs too, for
// checks.
func (o *Options) checkMemory(free int) error {
	longest := slices.Max(append([]int{0}, o.Sizes...))
	if need := 2 * float64(longest) * float64(o.Batch) * float64(o.Ranks); free > 0 && need > float64(free) {
		return fmt.Errorf("-e %s: %s with two buffers each need %.3g GiB of memory, and %.3g are free; choose a smaller -e, --batch or -n",
			o.to, counted(o.Ranks, "rank"), need/(1<<30), float64(free)/(1<<30))
	}
	return nil
}

// freeMemory returns the available memory in bytes, or 0 if it is unknown.
func freeMemory() int {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "MemAvailable:" {
			n, _ := strconv.Atoi(fields[1])
			return n << 10
		}
	}
	return 0
}
