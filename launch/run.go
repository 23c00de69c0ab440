package launch

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	// Until there are ranks, nothing is lost by just leaving.
	opening, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	opened := make(chan struct{})
	go func() {
		select {
		case <-lost:
			cancel(errors.New("the other launcher process is gone"))
		case s := <-stops(cfg.Signals, opened):
			cancel(errors.New("stopped by " + s.String()))
		case <-opened:
		}
	}()
	h, err := openHost(opening, &cfg)
	close(opened)
	if err != nil {
		return nil, err
	}
	defer h.leave()
	for epoch := 0; ; epoch++ {
		w := &world{h: h, cfg: &cfg, epoch: epoch}
		if err := w.run(ctx, lost); err != nil {
			return nil, err
		}
		if w.abandoned {
			h.announce(epoch, Exit{Rank: -1, Node: cfg.Node, Code: 1, How: "a launcher process was killed"})
			return &Report{Code: 1, Attempts: epoch + 1}, nil
		}
		r := w.report(w.first)
		if r.First == nil || epoch >= cfg.Restarts || w.stop != 0 || ctx.Err() != nil || r.First.Rank < 0 {
			return r, nil
		}
		_, _ = io.WriteString(cfg.Stderr, r.String()+"tutti: all ranks are started again\n")
	}
}

// stops passes on a signal, for as long as the job is not open. None is taken
// after that.
func stops(signals <-chan os.Signal, opened <-chan struct{}) <-chan os.Signal {
	if signals == nil {
		return nil
	}
	out := make(chan os.Signal)
	go func() {
		select {
		case <-opened:
			return
		default:
		}
		select {
		case s := <-signals:
			select {
			case out <- s:
			case <-opened:
			}
		case <-opened:
		}
	}()
	return out
}

// report puts together how an attempt ended.
func (w *world) report(first *Exit) *Report {
	r := &Report{Attempts: w.epoch + 1, First: first}
	for _, k := range w.ranks {
		k.exit.Doing = k.doing
		r.Ranks = append(r.Ranks, *k.exit)
		if first != nil && first.Rank == k.number {
			first.Lines = k.exit.Lines
			if k.tail.panic != "" {
				first.How = "it panicked, " + first.How
			}
		}
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
