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

// Run runs a job's ranks on this host and returns when all have ended. The
// error is non-nil if they could not be started; how they ended is in the
// Report.
//
// On Linux it makes this process the one that inherits whatever its ranks leave
// behind, and takes the end of every child of this process: start no others
// beside it. At the end every descendant of this process is killed.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	if err := becomeReaper(); err != nil {
		// So it is under some emulators. Ranks themselves are ended all the same.
		cfg.Logger.Warn("tutti: what ranks leave behind cannot be ended on this system", "reason", err)
	}
	lost := make(chan struct{})
	if cfg.Lifeline != nil {
		go func() {
			_, _ = io.Copy(io.Discard, cfg.Lifeline)
			close(lost)
		}()
	}
	h, early, err := open(ctx, &cfg, lost)
	if h == nil {
		return early, err
	}
	defer h.leave()
	outs := newOutputs(&cfg)
	for epoch := h.epoch; ; epoch++ {
		w := &world{h: h, cfg: &cfg, epoch: epoch, outs: outs}
		if err := w.run(ctx, lost); err != nil {
			return nil, err
		}
		if w.abandoned {
			h.alone = true
			h.abandon(w.abandonment())
			if h.reg == nil {
				h.announce(epoch, w.abandonment())
			}
			return &Report{Code: 1, Attempts: epoch + 1, Incomplete: outs.lacking()}, nil
		}
		r := w.report(w.first)
		if h.reg != nil {
			if !w.again || w.quitting {
				return r, nil
			}
			outs.print(r.String() + "tutti: all ranks are started again, when all hosts are here\n")
			if early, err := h.again(ctx, &cfg, lost); early != nil || err != nil {
				return early, err
			}
			continue
		}
		if r.First == nil || epoch >= cfg.Restarts || w.stop != 0 || ctx.Err() != nil || r.First.Rank < 0 {
			return r, nil
		}
		outs.print(r.String() + "tutti: all ranks are started again\n")
	}
}

// open opens the host's part in the job. If the job is stopped before that, the
// report says so.
func open(ctx context.Context, cfg *Config, lost <-chan struct{}) (*host, *Report, error) {
	var h *host
	early, err := attend(ctx, cfg, lost, func(ctx context.Context) (err error) {
		h, err = openHost(ctx, cfg)
		return err
	})
	if early != nil && h != nil {
		h.stopEarly(early.First.How)
		h = nil
	}
	return h, early, err
}

// ends reports whether a signal asks a job to end.
func ends(sig syscall.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGHUP
}

// report puts together how an attempt ended.
func (w *world) report(first *Exit) *Report {
	r := &Report{Attempts: w.epoch + 1, First: first, Incomplete: w.outs.lacking()}
	r.Hosts = w.lostHosts
	var told []*flight.Dump
	for _, k := range w.ranks {
		if k.tail.panic != "" {
			k.exit.How = "it panicked, " + k.exit.How
		}
		k.exit.Doing = k.doing
		if first != nil && k.loss == nil && !w.quitting {
			if dumps := w.h.told(w.epoch, k.name()); len(dumps) > 0 {
				k.exit.Doing = doing(dumps)
				told = append(told, dumps...)
			}
		}
		if k.loss == nil || first != nil && first.of(k) {
			r.Ranks = append(r.Ranks, *k.exit)
		}
		if first != nil && first.of(k) {
			first.Lines, first.How = k.exit.Lines, k.exit.How
		}
	}
	for _, k := range w.ranks {
		if w.h.reg != nil && !w.h.alone && k.replacement > 0 {
			k.letIn = w.h.letIn(w.epoch, k.name())
		}
	}
	r.Lost = w.lost()
	if first != nil {
		r.Dumps = w.h.dumps(w.epoch)
	}
	if first != nil && first.Rank < 0 && w.cfg.Nodes == 1 {
		r.Found = found(told)
	}
	switch {
	case first == nil:
	case w.stop != 0:
		r.Code = 128 + int(w.stop)
	default:
		r.Code = max(first.Code, 1)
	}
	return r
}

// lookPath finds the program as a shell would.
func lookPath(cfg *Config) (string, error) {
	name := cfg.Command[0]
	path, err := exec.LookPath(name)
	if err == nil && cfg.Dir != "" && !filepath.IsAbs(path) && strings.Contains(name, "/") {
		return filepath.Abs(path)
	}
	return path, err
}
