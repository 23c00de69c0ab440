package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-go/tutti/internal/bench"
	"github.com/tutti-go/tutti/internal/doctor"
)

const doctorHelp = `Usage: tutti doctor [--json]

Checks this machine as the library sees it: CPU, cores, memory, limits, network,
environment, GPUs and NCCL. Runs a small collective on each available engine.
Each line is ok, warn (slow, or maybe not intended) or fail (does not work),
with a suggested fix. Checks that may crash run in other processes.

  tutti doctor
  tutti doctor --json        one object a line: level, area, what, do

Exit codes: 0 no check fails, 1 a check fails, 2 wrong flags.

Flags:
`

// tryTimeout and tryGPUTimeout bound one small collective on a busy machine. GPU
// libraries take long to initialize.
const (
	tryTimeout    = time.Minute
	tryGPUTimeout = 2 * time.Minute
)

// doctorFlags returns the flags. Completion uses them, too.
func doctorFlags(asJSON *bool) *flag.FlagSet {
	f := flag.NewFlagSet("tutti doctor", flag.ContinueOnError)
	f.BoolVar(asJSON, "json", false, "print one JSON object a line")
	return f
}

// runDoctor is the command tutti doctor. It returns the exit code: 1 if a check fails, 130 without
// a report if SIGINT or SIGTERM stops it.
func runDoctor(_ app, args []string) int {
	var asJSON bool
	f := doctorFlags(&asJSON)
	if code, done := readFlags(f, doctorHelp, args, os.Stdout, os.Stderr); done {
		return code
	}
	if f.NArg() > 0 {
		return usageError(f, fmt.Errorf("%q is not a flag", f.Arg(0)), os.Stderr)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := doctor.Probes{
		Threads: func(ctx context.Context) (n int, err error) {
			_, err = runProbeProcess(ctx, "threads", &n)
			return n, err
		},
		Memory: func(ctx context.Context) (m doctor.Memory, err error) { return m, probe(ctx, "memory", &m) },
		Try:    tryEngine,
	}
	if hasGPU {
		p.GPUs = func(ctx context.Context) (g doctor.GPUs, err error) { return g, probe(ctx, "gpu", &g) }
	}
	if isTerminal(os.Stderr) {
		fmt.Fprint(os.Stderr, "checking...")
	}
	lines := doctor.Diagnose(doctor.Gather(ctx, p))
	if isTerminal(os.Stderr) {
		fmt.Fprint(os.Stderr, "\r           \r")
	}
	if ctx.Err() != nil {
		return 130
	}
	if asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetEscapeHTML(false)
		for _, l := range lines {
			if err := e.Encode(l); err != nil {
				return printError(f, err)
			}
		}
	} else if _, err := fmt.Print(doctor.Text(lines, isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == "")); err != nil {
		return printError(f, err)
	}
	if doctor.Failed(lines) {
		return 1
	}
	return 0
}

// tryEngine runs a small collective on an engine, in other processes. A failure, or a try that
// takes too long, is described in Error. At the end of ctx it asks tutti bench to end its ranks,
// and kills it 10 seconds later. Several goroutines may call it.
func tryEngine(ctx context.Context, engine string, ranks int) doctor.Engine {
	e := doctor.Engine{Name: engine, Ranks: ranks}
	self, err := os.Executable()
	if err != nil {
		e.Error = err.Error()
		return e
	}
	limit := tryTimeout
	if engine == bench.NCCL || engine == bench.Staged {
		limit = tryGPUTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self, "bench", "--engine", engine, "-n", strconv.Itoa(ranks), "--op", "allreduce",
		"-b", "1K", "-e", "1K", "--iters", "20", "--json")
	cmd.Stdout, cmd.Stderr = &out, &stderr
	cmd.Env = envWithoutJob(os.Environ())
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // lets it end its ranks
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	var r bench.Result
	switch {
	case ctx.Err() != nil:
		e.Error = fmt.Sprintf("it did not end within %v%s", limit, firstLine(stderr.String()))
	case err != nil:
		e.Error = err.Error() + firstLine(stderr.String())
	case json.Unmarshal(out.Bytes(), &r) != nil:
		e.Error = "it printed no result"
	default:
		e.Got, e.P50 = r.Engine, r.P50
	}
	return e
}

// envWithoutJob removes the variables that describe a job.
func envWithoutJob(env []string) (rest []string) {
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		switch name {
		case "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
			"TUTTI_RANK", "TUTTI_SIZE", "TUTTI_LOCAL_RANK", "TUTTI_LOCAL_SIZE", "TUTTI_STORE", "TUTTI_ADDR",
			"TUTTI_ATTEMPT", "TUTTI_EPOCH", "TUTTI_NAME", "TUTTI_LATE", bench.PlanEnv:
			continue
		}
		if strings.HasPrefix(name, "SLURM_") || strings.HasPrefix(name, "OMPI_") || strings.HasPrefix(name, "PMI_") || strings.HasPrefix(name, "MPI_LOCAL") {
			continue
		}
		rest = append(rest, e)
	}
	return rest
}
