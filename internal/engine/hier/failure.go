package hier

import (
	"errors"
	"slices"
	"syscall"

	"github.com/tutti-go/tutti/internal/engine"
)

// Fail ends the group. A failure that the other ranks know of already is not
// passed on to OnFail.
func (e *Engine) Fail(f *engine.Failure) { _ = e.fail(f) }

// Failure is why the group has ended.
func (e *Engine) Failure() *engine.Failure { return e.cause.Load() }

// Failed is closed when the group has ended.
func (e *Engine) Failed() <-chan struct{} { return e.done }

// fail ends the group, and returns the cause that came first. When it returns,
// all inner groups have ended, too, whoever ended them.
func (e *Engine) fail(f *engine.Failure) *engine.Failure {
	return e.cause.Take(f, e.opt.OnFail, e.end)
}

// end passes the cause on to the inner groups.
func (e *Engine) end() {
	e.stop.Do(func() {
		told := *e.cause.Load()
		told.Told, told.Err = true, nil
		for _, inner := range e.inner() {
			inner.Fail(&told)
		}
		close(e.done)
	})
}

func failureOf(err error) *engine.Failure {
	f := (*engine.Failure)(nil)
	if errors.As(err, &f) {
		return f
	}
	return &engine.Failure{Kind: engine.ErrAborted, Err: err, Facts: engine.Facts{Text: err.Error()}}
}

// translate makes a failure of this group of one that began in an inner group.
// One that others know of came from there, and is this group's already.
func (e *Engine) translate(f *engine.Failure, p *part) *engine.Failure {
	if f.Told {
		return e.heard(f)
	}
	t := *f
	t.Op, t.Seq, t.Rank, t.Lost = e.op, e.seq, p.ranks[f.Rank], nil
	for _, r := range f.Lost {
		t.Lost = append(t.Lost, e.lostWith(p.ranks[r], f.Err)...)
	}
	if t.Rank != e.rank {
		t.Err = nil
	}
	t.Facts = f.Renumber(p.ranks)
	if t.Interrupted() {
		e.locate(&t)
		e.behind(&t, p)
	}
	return &t
}

// heard is a failure of this group that an inner one knows. If this rank does
// not, then from a rank that has left: what came first is still to be found out.
func (e *Engine) heard(f *engine.Failure) *engine.Failure {
	if e.cause.Load() != nil {
		return f
	}
	t := *f
	t.Told = false
	return &t
}

// lostWith are the ranks that are lost when one is: all of its host, if that is
// because the host does not answer.
func (e *Engine) lostWith(rank int, why error) (list []int) {
	if !errors.Is(why, syscall.ETIMEDOUT) && !errors.Is(why, syscall.EHOSTUNREACH) {
		return []int{rank}
	}
	for r, host := range e.hosts {
		if host == e.hosts[rank] {
			list = append(list, r)
		}
	}
	return list
}

// translateAll is the same for the group of all ranks, where calls and ranks are
// what they are here.
func (e *Engine) translateAll(f *engine.Failure) *engine.Failure {
	if f.Told {
		return e.heard(f)
	}
	t := *f
	if t.Interrupted() {
		e.locate(&t)
	}
	return &t
}

// locate corrects what an interrupted rank waited for. What happened to a rank
// between two steps happened, for an inner group, before it began. How far another
// rank had come is not known here: perhaps it had not begun, but then it was about to.
func (e *Engine) locate(f *engine.Failure) {
	if len(f.Wait.Ranks) > 0 || len(f.Wait.Unheard) > 0 || f.Rank == e.rank && !e.begun {
		return
	}
	var others []int
	for r := range e.hosts {
		if r != f.Rank {
			others = append(others, r)
		}
	}
	f.Wait = engine.Wait{Phase: engine.AboutToWait, Ranks: others}
}

// behind adds the ranks that the rank that failed may also have been waiting for: a
// leader waits for its host, and inside a host the others wait for their leader,
// which waits for other hosts.
func (e *Engine) behind(f *engine.Failure, p *part) {
	w := &f.Wait
	named := slices.Concat(w.Ranks, w.Unheard)
	if w.Phase == engine.AboutToWait || w.Phase == engine.NotBegun {
		named = nil
	}
	var mates, far []int
	for r, host := range e.hosts {
		if host == e.hosts[f.Rank] {
			continue
		}
		far = append(far, r)
		if host != r && slices.Contains(named, host) {
			mates = append(mates, r)
		}
	}
	switch leader := e.hosts[f.Rank]; {
	case p == &e.across && len(mates) > 0:
		w.Relay, w.Beyond = engine.HostsWait, mates
	case p == &e.across || len(far) == 0:
	case f.Rank != leader:
		w.Relay, w.Beyond, w.Leader = engine.LeaderWaits, far, leader
	case f.Rank == e.rank && !e.crossed:
		w.Relay, w.Beyond = engine.HostsNotAsked, far
	}
}
