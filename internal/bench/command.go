package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/affinity"
	"github.com/tutti-go/tutti/internal/cliflag"
	"github.com/tutti-go/tutti/internal/envvar"
	"github.com/tutti-go/tutti/internal/launchenv"
	"github.com/tutti-go/tutti/launch"
)

// PlanEnv holds the plan of a rank that Start has started.
const PlanEnv = "TUTTI_BENCH_PLAN"

// Exit codes of the command.
const (
	ExitOK     = 0 // everything was measured, and all results were right
	ExitFailed = 1 // the measurement failed
	ExitUsage  = 2 // invalid flags
	ExitWrong  = 3 // a result was wrong
)

// A Command is what tutti bench needs from the program that it is part of.
type Command struct {
	Self           []string // command line that starts this program as `tutti bench`
	Stdout, Stderr io.Writer
	Progress       bool // Stderr is a terminal
	// Catch keeps signals from ending this program, and returns them. A rank of
	// another launcher does not call it, because the launcher ends its ranks by
	// signals.
	Catch func() <-chan os.Signal
	// Devices returns, in another process, the number of GPUs, or why they cannot
	// be used. With nccl it also checks NCCL.
	Devices func(ctx context.Context, nccl bool) (int, error)
	// Open opens the GPU of the runLocal-th rank of a host. Nil: this program was
	// built without GPUs.
	Open func(runLocal int, nccl bool) (GPU, error)
	// Damage and Slow are for tests; see Job.
	Damage func(runRank int, what string, dst []byte)
	Slow   func(runRank int)
}

// Run is tutti bench: the command itself, a rank of its own job (PlanEnv), or a rank of another
// launcher. It prints errors and returns the exit code.
func (c *Command) Run(ctx context.Context, args []string) int {
	if text := os.Getenv(PlanEnv); text != "" {
		return c.exit(c.runChild(ctx, text))
	}
	o, err := Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return c.exit(ExitOK, cliflag.Print(c.Stdout, Help, NewFlags(new(Options))))
	}
	if err != nil {
		return c.exit(ExitUsage, err)
	}
	here, wrong := launchenv.Find(os.Getenv)
	badVariable := envvar.Check(os.Getenv) // every rank would refuse it
	switch {
	case wrong != "":
		return c.exit(ExitUsage, errors.New(wrong))
	case badVariable != nil:
		return c.exit(ExitUsage, badVariable)
	case here != nil && o.ranksSet:
		return c.exit(ExitUsage, fmt.Errorf("%s says that this is rank %d of %d: -n is for where there is no launcher", here.From, here.Rank, here.Size))
	case here != nil && o.Engine == Local:
		return c.exit(ExitUsage, fmt.Errorf("engine local is one process; %s has started %d", here.From, here.Size))
	}
	if here != nil && here.Rank != 0 {
		o.HTML, o.Against = "", "" // the files are on rank 0's host
	}
	printer, err := newPrinter(o, c)
	if err != nil {
		return c.exit(ExitUsage, err)
	}
	if here != nil {
		return c.exit(c.runMember(ctx, o, here, printer))
	}
	devices, err := c.chooseEngine(ctx, o)
	if err != nil {
		return c.exit(ExitFailed, err)
	}
	if err := o.setDefaults(devices); err != nil {
		return c.exit(ExitUsage, err)
	}
	if o.Engine == Local {
		return c.exit(c.runLocal(ctx, o, printer))
	}
	return c.exit(c.runProcesses(ctx, o, devices, printer))
}

// exit prints an error in one line and returns code.
func (c *Command) exit(code int, err error) int {
	if err != nil {
		fmt.Fprintln(c.Stderr, "tutti bench:", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return code
}

// chooseEngine decides what auto means on this machine: the GPUs, if there are any.
// It adds a note about GPUs that cannot be used.
func (c *Command) chooseEngine(ctx context.Context, o *Options) (devices int, err error) {
	p := &o.Plan
	if p.Engine != Auto && !p.device() {
		return 0, nil
	}
	if c.Open == nil {
		err = errors.New("this tutti was built without GPUs (tag nogpu)")
	} else {
		devices, err = c.Devices(ctx, p.Engine != Staged)
	}
	switch {
	case p.Engine == Auto && err == nil && devices > 0:
		p.Engine = NCCL
	case p.Engine == Auto && err != nil && devices > 0:
		o.note = fmt.Sprintf("%s not used: %v", counted(devices, "GPU"), err)
	case p.Engine == Auto:
	case err != nil:
		return 0, fmt.Errorf("engine %s: %w", p.Engine, err)
	case devices == 0:
		return 0, fmt.Errorf("engine %s: there is no GPU; tutti doctor says more", p.Engine)
	}
	return devices, nil
}

// runLocal runs all ranks as goroutines of this process. A signal cancels their context; a second
// one ends the command without waiting for them. Rank 0's goroutine calls printer.Handle, perhaps
// during Close here; the Printer's lock serializes the two.
func (c *Command) runLocal(ctx context.Context, o *Options, printer *Printer) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals, done := c.Catch(), make(chan error, 1)
	go func() {
		done <- tutti.RunLocal(ctx, o.Ranks, tutti.Config{}, func(ctx context.Context, comm *tutti.Comm) error {
			_, err := Measure(ctx, Job{Plan: &o.Plan, Comm: comm, Emit: printer.Handle, Damage: c.Damage, Slow: c.Slow})
			return err
		})
	}()
	select {
	case err := <-done:
		return c.finish(printer, err)
	case sig := <-signals:
		cancel()
		select {
		case <-done:
		case <-signals:
		}
		code, name := ExitFailed, sig.String()
		if s, ok := sig.(syscall.Signal); ok {
			code, name = 128+int(s), unix.SignalName(s)
		}
		err := errors.New("stopped by " + name + printer.stopText(nil))
		_ = printer.Close(err)
		return code, err
	}
}

// finish returns the exit code and the error of a run.
func (c *Command) finish(printer *Printer, err error) (int, error) {
	if e := printer.Close(err); err == nil {
		err = e
	}
	switch {
	case printer.wrong() > 0:
		return ExitWrong, err
	case err != nil:
		return ExitFailed, err
	}
	return ExitOK, nil
}

// childArgs are passed to ranks in PlanEnv.
type childArgs struct {
	Plan    Plan
	Devices int
	Bind    bool
}

// runProcesses starts the ranks as processes and shows rank 0's events. If a rank fails, launch.Run
// ends the others, and the exit code is the rank's. A signal ends all ranks in the same way.
func (c *Command) runProcesses(ctx context.Context, o *Options, devices int, printer *Printer) (int, error) {
	// NCCL has threads of its own, and selects their cores itself.
	plan, err := json.Marshal(childArgs{o.Plan, devices, o.Bind && (o.bindSet || !o.device())})
	if err != nil {
		return ExitFailed, err
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, PlanEnv+"=") })
	env = append(env, PlanEnv+"="+string(plan))
	out := &events{printer: printer}
	report, err := launch.Run(ctx, launch.Config{
		Command: c.Self, Ranks: o.Ranks, Env: env,
		Stdout: out, Stderr: printer.Notices(), Signals: c.Catch(),
		// No other process knows the address, so the only warning would be about a
		// rank that exits while it connects. That is how a short run ends.
		Logger: slog.New(slog.DiscardHandler),
	})
	switch {
	case err != nil:
		_ = printer.Close(err)
		return ExitFailed, err
	case report.First != nil:
		err := fmt.Errorf("rank %d: %s", report.First.Rank, report.First.How)
		if report.First.Rank < 0 {
			err = errors.New(report.First.How + printer.stopText(report.Found))
		}
		_ = printer.Close(err)
		return report.Code, err
	}
	return c.finish(printer, out.failed())
}

// events reads rank 0's events from the output of all ranks.
type events struct {
	printer *Printer
	mu      sync.Mutex
	line    []byte // beginning of an incomplete line; guarded by mu
	err     error  // the first error of an event; guarded by mu
}

// Write reads lines, which may arrive in pieces. Lines that are not events are printed as notices.
// It always reports success, so that the launcher goes on reading; failed returns the first error
// later.
func (e *events) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.line = append(e.line, p...)
	end := bytes.LastIndexByte(e.line, '\n') + 1
	text := string(e.line[:end])
	e.line = append(e.line[:0], e.line[end:]...)
	for line := range strings.Lines(text) {
		event, ok, err := decode(line)
		if !ok {
			_, _ = io.WriteString(e.printer.Notices(), line)
			continue
		}
		if err == nil {
			err = e.printer.Handle(event)
		}
		if err != nil && e.err == nil {
			e.err = err
		}
	}
	return len(p), nil
}

func (e *events) failed() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// runChild is a rank that runProcesses has started. It writes its events to its standard output. It
// does not print an error that another rank has caused.
func (c *Command) runChild(ctx context.Context, text string) (int, error) {
	var in childArgs
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return ExitFailed, fmt.Errorf("%s: %w", PlanEnv, err)
	}
	emit := func(e Event) error {
		line, err := encode(e)
		if err != nil {
			return err
		}
		_, err = c.Stdout.Write(line)
		return err
	}
	here, wrong := launchenv.Find(os.Getenv)
	if here == nil {
		return ExitFailed, fmt.Errorf("%s is set, but this is no rank %s", PlanEnv, wrong)
	}
	if _, err := c.runRank(ctx, &in.Plan, here, in.Devices, in.Bind, emit); err != nil {
		return c.onlyFirst(err, here.Rank)
	}
	return ExitOK, nil // the parent prints the wrong results
}

// runMember is a rank of another launcher's job. Rank 0 prints. Every rank returns a code other
// than ExitOK if the measurement failed or a result was wrong.
func (c *Command) runMember(ctx context.Context, o *Options, here *launchenv.Place, printer *Printer) (int, error) {
	o.Ranks = here.Size
	devices, err := c.chooseEngine(ctx, o)
	if err != nil {
		return ExitFailed, err
	}
	if err := o.validate(); err != nil {
		return ExitUsage, err
	}
	if o.Plan.Engine, err = c.agreeOnEngine(ctx, o.Plan.Engine); err != nil {
		return c.onlyFirst(err, here.Rank)
	}
	wrong, err := c.runRank(ctx, &o.Plan, here, devices, false, printer.Handle)
	if here.Rank == 0 {
		return c.finish(printer, err)
	}
	if err == nil && wrong > 0 {
		return ExitWrong, nil
	}
	if err != nil {
		return c.onlyFirst(err, here.Rank)
	}
	return ExitOK, nil
}

// agreeOnEngine makes ranks with different devices agree on an engine: GPUs only if all ranks have
// them. It joins a Comm of its own, unless the flags or the build leave nothing to decide.
func (c *Command) agreeOnEngine(ctx context.Context, mine string) (string, error) {
	if c.Open == nil || mine != Auto && mine != NCCL {
		return mine, nil
	}
	comm, err := tutti.Join(ctx, tutti.Config{})
	if err != nil {
		return "", err
	}
	has := int32(0)
	if mine == NCCL {
		has = 1
	}
	all, err := tutti.AllReduceValue(ctx, comm, has, tutti.Min)
	if err == nil {
		err = comm.Close()
	}
	if err != nil {
		return "", err
	}
	if all == 1 {
		return NCCL, nil
	}
	return Auto, nil
}

// onlyFirst prints an error of the whole group on rank 0 only.
func (c *Command) onlyFirst(err error, rank int) (int, error) {
	var e *tutti.Error
	if errors.As(err, &e) && e.Rank != rank {
		return ExitFailed, nil
	}
	return ExitFailed, err
}

// runRank joins the job and measures, in the caller's goroutine. If the measurement fails here, it
// aborts the Comm, so that the other ranks end with the same cause.
func (c *Command) runRank(ctx context.Context, p *Plan, here *launchenv.Place, devices int, bind bool, emit func(Event) error) (wrong int, err error) {
	local, err := findLocalRank(os.Getenv, here.Rank, here.Size)
	if err != nil {
		return 0, err
	}
	cfg := p.config(local.rank, local.ranks)
	if p.device() {
		if err := c.separateHost(here.Rank, local, devices); err != nil {
			return 0, err
		}
	}
	if bind {
		own := affinity.Share(affinity.Allowed(), local.ranks, local.rank)
		// The process binds itself, so that Join knows how many cores the host has:
		// with fewer cores than ranks, waits do not spin. Where binding is not
		// permitted, the table says so.
		if err := affinity.Bind(own); err == nil && own != nil && p.device() {
			runtime.GOMAXPROCS(len(own)) // more Go threads would compete with NCCL's
		}
	}
	var gpu GPU
	if p.device() {
		if cfg.HostStaging = p.Engine == Staged; cfg.HostStaging {
			// The user asked for this engine, so a warning that it is slow is not
			// needed.
			cfg.Logger = slog.New(slog.NewTextHandler(c.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
		}
		if gpu, err = c.Open(local.rank, p.Engine == NCCL); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, gpu.Close()) }()
		cfg.Device = gpu.Device()
	}
	comm, err := tutti.Join(ctx, cfg)
	if err != nil {
		return 0, err
	}
	wrong, err = Measure(ctx, Job{Plan: p, Comm: comm, GPU: gpu, Emit: emit, Damage: c.Damage, Slow: c.Slow})
	if err != nil {
		comm.Abort(err)
	}
	return wrong, errors.Join(err, comm.Close())
}

// separateHost makes this process a host of its own to NCCL if ranks share a GPU,
// which NCCL refuses within a host. NCCL reads its environment when it is loaded,
// so the program is executed again.
func (c *Command) separateHost(rank int, local localRank, devices int) error {
	const name = "NCCL_HOSTID"
	if devices >= local.ranks || os.Getenv(name) != "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Setenv(name, fmt.Sprintf("tutti-bench-%d", rank)); err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, os.Environ())
}
