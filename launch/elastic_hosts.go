package launch

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// This file is the launcher's part in an elastic job over several hosts (Config.Min,
// Config.Nodes). The launcher reports the exits of its processes and replaces them; the
// coordinator decides about the job. The main loop makes no store call to another host,
// because that would delay noticing the exit of a rank.

// reportProcesses copies the state of the processes into the next heartbeat to the coordinator. It
// does not wait: the registration's goroutine sends the heartbeat. Only the goroutine of run calls
// it.
func (a *attempt) reportProcesses() {
	list := make([]processReport, len(a.ranks))
	for i, r := range a.ranks {
		list[i] = processReport{Name: r.name(), Rank: r.number, Replacement: r.replacement}
		if r.exit != nil {
			e := *r.exit
			list[i].Exit = &e
		}
	}
	a.h.reg.update(func(b *heartbeat) {
		if b.Attempt != a.number {
			b.Attempt, b.Ended = a.number, false
		}
		b.Processes = list
	})
}

// applyEvent carries out a decision of the coordinator. It does not wait for the ranks that it
// ends. Only the goroutine of run calls it, with the events in order.
func (a *attempt) applyEvent(e event) {
	if e.Why != "" && !a.leaving {
		a.outs.printf("%s", e.Why)
	}
	switch e.Kind {
	case eventFormed:
		a.joined = true
		a.dropEarlyFailures()
	case eventSucceeded:
		a.succeeded = true
	case eventFinished:
		if a.alive > 0 {
			a.terminate(syscall.SIGTERM) // ends replacements that no rank will admit any more
		}
		a.ending = true
	case eventFailed:
		if a.leaving {
			return
		}
		if a.firstFailure == nil {
			a.firstFailure = e.Exit
			a.recordKnownActivity()
		}
		a.firstFailure = e.Exit // replaces a later failure of this launcher
		a.terminateOnce()
	case eventDone:
		a.done, a.firstFailure, a.lostHosts, a.restart = true, e.Exit, e.Hosts, e.Restart
	}
}

// recordKnownActivity stores the ranks' activity at the time of the first failure, as
// far as this launcher knows it.
func (a *attempt) recordKnownActivity() {
	for _, r := range a.ranks {
		switch {
		case r.exit != nil && !a.firstFailure.matches(r):
		case r.exit == nil && isStopped(r.pid):
			r.activity, r.stopped = wasStopped, true
		case r.replacement > 0 && !a.isMember(r):
			r.activity = "was waiting to be admitted"
		case a.joined:
			r.activity = hadJoined
		}
	}
}

// dropEarlyFailures handles the failed processes once the ranks have joined. If a rank
// fails before that, the coordinator ends the job.
func (a *attempt) dropEarlyFailures() {
	if !a.joined || a.ending {
		return
	}
	list := a.earlyFailures
	a.earlyFailures = nil
	for _, r := range list {
		a.dropRank(r)
	}
}

// pending reports whether this launcher may still start processes although none runs.
func (a *attempt) pending() bool {
	return a.h.reg != nil && !a.ending && (len(a.elastic.replacements) > 0 || len(a.earlyFailures) > 0 || len(a.undecided) > 0)
}

// leave ends this host's ranks because of e. The job continues without them, unless this is node 0,
// whose failure ends the job. A second call only sends sig. Only the goroutine of run calls it.
func (a *attempt) leave(e Exit, sig syscall.Signal) {
	if a.firstFailure != nil {
		a.terminate(sig)
		return
	}
	a.firstFailure = &e
	if a.cfg.Node == 0 {
		a.recordActivity(e) // fast: the store is in this process
		a.h.reg.update(func(b *heartbeat) { b.Fatal = &e })
	} else {
		a.leaving = true
		a.h.reg.update(func(b *heartbeat) { b.Leaving = e.How })
		a.outs.printf("%s; this host leaves the job", e.How)
	}
	a.terminate(sig)
}

// handleDeclaredLost ends this host's ranks because the coordinator counts them as
// lost.
func (a *attempt) handleDeclaredLost(why string) {
	if a.firstFailure == nil {
		a.firstFailure = &Exit{
			Rank: -1, Node: a.cfg.Node, Code: 1, After: time.Since(a.begin),
			How: fmt.Sprintf("node 0 declared this host lost: %s; its ranks are ended", why),
		}
	}
	a.leaving, a.h.peerLost = true, true
	a.terminateOnce()
}

// handleLostStore ends this host's ranks because node 0 is lost.
func (a *attempt) handleLostStore(e Exit) {
	a.h.peerLost = true
	if a.firstFailure == nil {
		a.firstFailure = &e
	}
	a.leaving = true
	a.terminateOnce()
}

// terminateOnce calls terminate unless that was done: a second call would signal ranks
// that are still reporting their activity.
func (a *attempt) terminateOnce() {
	if !a.ending {
		a.terminate(syscall.SIGTERM)
	}
}

// awaitLaunchers waits until all launchers have ended the attempt, this host leaves the job, or the
// lifeline is closed. Without a failure there is no timeout: ranks on other hosts may run for any
// time. Only the goroutine of run calls it.
func (a *attempt) awaitLaunchers(ctx context.Context, events <-chan event, lifeline <-chan struct{}) {
	a.reportProcesses()
	a.h.reg.update(func(b *heartbeat) { b.Ended = true })
	stop := ctx.Done()
	var timeout <-chan time.Time
	for !a.done && !a.leaving && !a.lifelineEnded {
		if a.firstFailure != nil && timeout == nil {
			timeout = time.After(a.cfg.Grace + a.cfg.LostTime + a.h.closeTimeout()) // another host may be lost, too
		}
		select {
		case e := <-events:
			a.applyEvent(e)
		case why := <-a.h.reg.declaredLost:
			a.handleDeclaredLost(why)
		case e := <-a.h.lost:
			a.handleLostStore(e)
		case sig := <-a.cfg.Signals:
			a.handleSignal(sig)
		case <-stop:
			stop = nil
			a.leave(a.stopped(ctx), syscall.SIGTERM)
		case <-lifeline:
			a.lifelineEnded = true
		case <-timeout:
			return
		}
	}
}

// leaveBySignal is handleSignal in an elastic job over several hosts.
func (a *attempt) leaveBySignal(sig syscall.Signal) {
	a.stopSignal = sig
	a.leave(Exit{
		Rank: -1, Node: a.cfg.Node, Code: 128 + int(sig), How: "stopped by " + signalName(sig), After: time.Since(a.begin),
	}, sig)
}

// awaitRestart waits for the next attempt. The report is non-nil if there is none.
func (h *host) awaitRestart(ctx context.Context, cfg *Config, lifeline <-chan struct{}) (*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.JoinTime)
	defer cancel()
	return runUntilStopped(ctx, cfg, lifeline, func(ctx context.Context) error { return h.awaitBegin(ctx) })
}

// runUntilStopped calls f in another goroutine and waits until it returns. A signal or the end of
// the lifeline cancels f's context; the report then says so, and f's error is dropped. If ctx
// itself ends, there is no report, and the error is that of f.
func runUntilStopped(ctx context.Context, cfg *Config, lifeline <-chan struct{}, f func(context.Context) error) (early *Report, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop := func(code int, how string) {
		if early == nil {
			early = &Report{Code: code, First: &Exit{Rank: -1, Node: cfg.Node, Code: code, How: how + " before ranks were started"}}
		}
		cancel()
	}
	for {
		select {
		case err := <-done:
			if early != nil {
				err = nil
			}
			return early, err
		case <-lifeline:
			lifeline = nil
			stop(1, "another launcher process was killed")
		case s := <-cfg.Signals:
			if sig, ok := s.(syscall.Signal); ok && endsJob(sig) {
				stop(128+int(sig), "stopped by "+signalName(sig))
			}
		}
	}
}
