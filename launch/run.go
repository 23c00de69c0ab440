package launch

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tutti-go/tutti/internal/flight"
)

// Run runs a job's ranks on this host and returns when all have exited. The error is
// non-nil if Run could not start the ranks. The Report says how the ranks ended. When ctx
// ends, Run ends the ranks as after a failure, and does not start them again.
//
// On Linux, Run makes this process the reaper of its orphaned descendants and collects
// the exit of every child: the caller must start no other child processes meanwhile. At
// the end Run kills every descendant of this process.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	if err := becomeReaper(); err != nil {
		// Some emulators lack subreapers. Run still ends the ranks themselves.
		cfg.Logger.Warn("tutti: processes that ranks leave behind cannot be ended on this system", "reason", err)
	}
	lifeline := make(chan struct{})
	if cfg.Lifeline != nil {
		go func() {
			_, _ = io.Copy(io.Discard, cfg.Lifeline)
			close(lifeline)
		}()
	}
	h, early, err := openUntilStopped(ctx, &cfg, lifeline)
	if h == nil {
		return early, err
	}
	defer h.leave()
	outs := newOutputs(&cfg)
	for n := h.attempt; ; n++ {
		a := &attempt{h: h, cfg: &cfg, number: n, outs: outs}
		if err := a.run(ctx, lifeline); err != nil {
			return nil, err
		}
		if a.lifelineEnded {
			h.peerLost = true
			h.reportLauncherFailure(a.launcherKilled())
			if h.reg == nil {
				h.publishFailure(n, a.launcherKilled())
			}
			return &Report{Code: 1, Attempts: n + 1, Incomplete: outs.incompleteLogs()}, nil
		}
		r := a.report(a.firstFailure)
		if h.reg != nil {
			if !a.restart || a.leaving {
				return r, nil
			}
			outs.print(r.String() + "tutti: all ranks are started again when all hosts have joined\n")
			if early, err := h.awaitRestart(ctx, &cfg, lifeline); early != nil || err != nil {
				return early, err
			}
			continue
		}
		if r.First == nil || n >= cfg.Restarts || a.stopSignal != 0 || ctx.Err() != nil || r.First.Rank < 0 {
			return r, nil
		}
		outs.print(r.String() + "tutti: all ranks are started again\n")
	}
}

// openUntilStopped opens this host's part in the job. If the launcher is stopped first,
// the report says so.
func openUntilStopped(ctx context.Context, cfg *Config, lifeline <-chan struct{}) (*host, *Report, error) {
	var h *host
	early, err := runUntilStopped(ctx, cfg, lifeline, func(ctx context.Context) (err error) {
		h, err = openHost(ctx, cfg)
		return err
	})
	if early != nil && h != nil {
		h.stopEarly(early.First.How)
		h = nil
	}
	return h, early, err
}

// endsJob reports whether a signal asks a job to end.
func endsJob(sig syscall.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGHUP
}

// report summarizes the attempt for a first failure, which is nil if there was none. It adds the
// ranks' activity to their exits. It is called after run has returned; a store that does not answer
// costs details, not the report.
func (a *attempt) report(first *Exit) *Report {
	r := &Report{Attempts: a.number + 1, First: first, Incomplete: a.outs.incompleteLogs()}
	r.Hosts = a.lostHosts
	var all []*flight.Dump
	var stopped []int
	for _, k := range a.ranks {
		if k.tail.panic != "" {
			k.exit.How = "panicked, " + k.exit.How
		}
		k.exit.Doing = k.activity
		if first != nil && k.loss == nil && !a.leaving {
			if k.stopped {
				stopped = append(stopped, k.number)
			} else if dumps := a.h.activityDumps(a.number, k.name()); len(dumps) > 0 {
				k.exit.Doing = describeActivity(dumps)
				all = append(all, dumps...)
			}
		}
		if k.loss == nil || first != nil && first.matches(k) {
			r.Ranks = append(r.Ranks, *k.exit)
		}
		if first != nil && first.matches(k) {
			first.Lines, first.How = k.exit.Lines, k.exit.How
		}
	}
	for _, k := range a.ranks {
		if a.h.reg != nil && !a.h.peerLost && k.replacement > 0 {
			k.admittedAs = a.h.admittedAs(a.number, k.name())
		}
	}
	r.Lost, r.Stopped = a.lost(), len(stopped)
	if first != nil {
		r.Dumps = a.h.dumpPattern(a.number)
	}
	if first != nil && first.Rank < 0 && a.cfg.Nodes == 1 {
		r.Found = findings(all, stopped)
	}
	switch {
	case first == nil:
	case a.stopSignal != 0:
		r.Code = 128 + int(a.stopSignal)
	default:
		r.Code = max(first.Code, 1)
	}
	return r
}

// lookPath finds the program as a shell does.
func lookPath(cfg *Config) (string, error) {
	name := cfg.Command[0]
	path, err := exec.LookPath(name)
	if err == nil && cfg.Dir != "" && !filepath.IsAbs(path) && strings.Contains(name, "/") {
		return filepath.Abs(path)
	}
	return path, err
}
