package launch

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// What a launcher does in an elastic job over several hosts (Config.Min, Config.Nodes):
// it reports the ends of its processes and replaces them, and the coordinator decides
// about the job. The main loop makes no call of a store on another host: it would delay
// noticing the end of a rank.

// tell reports the processes to the coordinator.
func (w *world) tell() {
	list := make([]processReport, len(w.ranks))
	for i, r := range w.ranks {
		list[i] = processReport{Name: r.name(), Rank: r.number, Replacement: r.replacement}
		if r.exit != nil {
			e := *r.exit
			list[i].Exit = &e
		}
	}
	w.h.reg.update(func(b *heartbeat) {
		if b.Epoch != w.epoch {
			b.Epoch, b.Ended = w.epoch, false
		}
		b.Processes = list
	})
}

// heed does what the coordinator has decided.
func (w *world) heed(e event) {
	if e.Why != "" && !w.quitting {
		w.outs.say("%s", e.Why)
	}
	switch e.Kind {
	case eventFormed:
		w.formedYet = true
		w.dropEarly()
	case eventOver:
		w.over = true
	case eventFinished:
		if w.alive > 0 {
			w.end(syscall.SIGTERM) // of processes that no rank will let in any more
		}
		w.ending = true
	case eventFailed:
		if w.quitting {
			return
		}
		if w.first == nil {
			w.first = e.Exit
			w.noteDoing()
		}
		w.first = e.Exit // this launcher's own failure may have been later
		w.endOnce()
	case eventDone:
		w.done, w.first, w.lostHosts, w.again = true, e.Exit, e.Hosts, e.Restart
	}
}

// noteDoing notes what the ranks were doing at the time of the first failure, as far as
// this launcher knows it.
func (w *world) noteDoing() {
	for _, r := range w.ranks {
		switch {
		case r.exit != nil && !w.first.of(r):
		case r.replacement > 0 && !w.isMember(r):
			r.doing = "was waiting to be let in"
		case w.formedYet:
			r.doing = hadJoined
		}
	}
}

// dropEarly sees to the processes that have ended badly, once the ranks have joined:
// before that the coordinator ends the job.
func (w *world) dropEarly() {
	if !w.formedYet || w.ending {
		return
	}
	list := w.early
	w.early = nil
	for _, r := range list {
		w.drop(r)
	}
}

// pending reports whether this launcher may start processes although none runs.
func (w *world) pending() bool {
	return w.h.reg != nil && !w.ending && (len(w.crew.due) > 0 || len(w.early) > 0 || len(w.held) > 0)
}

// quit ends this host's ranks. The job goes on without them, unless this is node 0: its
// failures are the job's.
func (w *world) quit(e Exit, sig syscall.Signal) {
	if w.first != nil {
		w.end(sig)
		return
	}
	w.first = &e
	if w.cfg.Node == 0 {
		w.lookAt(e) // the store is in this process
		w.h.reg.update(func(b *heartbeat) { b.Fatal = &e })
	} else {
		w.quitting = true
		w.h.reg.update(func(b *heartbeat) { b.Leaving = e.How })
		w.outs.say("%s; this host leaves the job", e.How)
	}
	w.end(sig)
}

// givenUp ends this host's ranks because the coordinator counts them as lost.
func (w *world) givenUp(why string) {
	if w.first == nil {
		w.first = &Exit{
			Rank: -1, Node: w.cfg.Node, Code: 1, After: time.Since(w.begin),
			How: fmt.Sprintf("node 0 has given this host up: %s; its ranks are ended", why),
		}
	}
	w.quitting, w.h.alone = true, true
	w.endOnce()
}

// lostStore ends this host's ranks because node 0 is lost.
func (w *world) lostStore(e Exit) {
	w.h.alone = true
	if w.first == nil {
		w.first = &e
	}
	w.quitting = true
	w.endOnce()
}

// endOnce asks the ranks to end, unless that was done: they may be telling what they
// were doing.
func (w *world) endOnce() {
	if !w.ending {
		w.end(syscall.SIGTERM)
	}
}

// settleHosts waits until all launchers have ended the attempt. Those where it goes well
// may take as long as they like.
func (w *world) settleHosts(ctx context.Context, events <-chan event, lost <-chan struct{}) {
	w.tell()
	w.h.reg.update(func(b *heartbeat) { b.Ended = true })
	stop := ctx.Done()
	var patience <-chan time.Time
	for !w.done && !w.quitting && !w.abandoned {
		if w.first != nil && patience == nil {
			patience = time.After(w.cfg.Grace + w.cfg.LostTime + w.h.patience()) // another host may have been lost, too
		}
		select {
		case e := <-events:
			w.heed(e)
		case why := <-w.h.reg.gone:
			w.givenUp(why)
		case e := <-w.h.gone:
			w.lostStore(e)
		case sig := <-w.cfg.Signals:
			w.signal(sig)
		case <-stop:
			stop = nil
			w.quit(w.stopped(ctx), syscall.SIGTERM)
		case <-lost:
			w.abandoned = true
		case <-patience:
			return
		}
	}
}

// quitBySignal is signal in an elastic job over several hosts.
func (w *world) quitBySignal(sig syscall.Signal) {
	w.stop = sig
	w.quit(Exit{
		Rank: -1, Node: w.cfg.Node, Code: 128 + int(sig), How: "stopped by " + signalName(sig), After: time.Since(w.begin),
	}, sig)
}

// again waits for the next attempt. The report says why there is none.
func (h *host) again(ctx context.Context, cfg *Config, lost <-chan struct{}) (*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.JoinTime)
	defer cancel()
	return attend(ctx, cfg, lost, func(ctx context.Context) error { return h.awaitBegin(ctx) })
}

// attend carries out f, and ends it when this launcher is stopped. Then the report says
// so.
func attend(ctx context.Context, cfg *Config, lost <-chan struct{}, f func(context.Context) error) (early *Report, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- f(ctx) }()
	stop := func(code int, how string) {
		if early == nil {
			early = &Report{Code: code, First: &Exit{Rank: -1, Node: cfg.Node, Code: code, How: how + " before there were ranks"}}
		}
		cancel()
	}
	for {
		select {
		case err := <-over:
			if early != nil {
				err = nil
			}
			return early, err
		case <-lost:
			lost = nil
			stop(1, "another launcher process was killed")
		case s := <-cfg.Signals:
			if sig, ok := s.(syscall.Signal); ok && ends(sig) {
				stop(128+int(sig), "stopped by "+signalName(sig))
			}
		}
	}
}
