package hier

import (
	"errors"
	"slices"
	"syscall"

	"github.com/tutti-go/tutti/internal/engine"
)

// Fail ends the group. It does not pass a failure with Told to OnFail.
func (e *Engine) Fail(f *engine.Failure) { _ = e.fail(f) }

// Failure returns the first failure of the group, or nil.
func (e *Engine) Failure() *engine.Failure { return e.cause.Load() }

// Failed is closed when the group has ended.
func (e *Engine) Failed() <-chan struct{} { return e.done }

// fail ends the group, and returns its first cause. When it returns, all inner groups have
// ended.
func (e *Engine) fail(f *engine.Failure) *engine.Failure {
	return e.cause.Take(f, e.opt.OnFail, e.failInner)
}

// failInner ends the inner groups with the cause of this group.
func (e *Engine) failInner() {
	e.stopOnce.Do(func() {
		shared := *e.cause.Load()
		shared.Told, shared.Err = true, nil
		for _, inner := range e.inner() {
			inner.Fail(&shared)
		}
		close(e.done)
	})
}

// failureOf returns the Failure in an error of an inner engine.
func failureOf(err error) *engine.Failure {
	f := (*engine.Failure)(nil)
	if errors.As(err, &f) {
		return f
	}
	return &engine.Failure{Kind: engine.ErrAborted, Err: err, Facts: engine.Facts{Text: err.Error()}}
}

// translate turns a failure of an inner group into a failure of this group. A failure with
// Told is already one of this group: failInner or another rank has passed it to the inner
// group.
func (e *Engine) translate(f *engine.Failure, p *subgroup) *engine.Failure {
	if f.Told {
		return e.adopt(f)
	}
	t := *f
	t.Op, t.Seq, t.Rank, t.Lost = e.op, e.seq, p.ranks[f.Rank], nil
	for _, r := range f.Lost {
		t.Lost = append(t.Lost, e.lostWithHost(p.ranks[r], f.Err)...)
	}
	if t.Rank != e.rank {
		t.Err = nil
	}
	t.Facts = f.Renumber(p.ranks)
	if t.Interrupted() {
		e.correctWait(&t)
		e.addRelay(&t, p)
	}
	return &t
}

// adopt returns a failure with Told from an inner group as this group's failure. If this
// group has no cause yet, the exit reason of a rank that has left carried it. It may not be
// the first failure, so adopt clears Told and OnFail finds out.
func (e *Engine) adopt(f *engine.Failure) *engine.Failure {
	if e.cause.Load() != nil {
		return f
	}
	t := *f
	t.Told = false
	return &t
}

// lostWithHost returns the ranks that are lost if a rank is lost because of why: all ranks of
// its host if the host does not answer, and otherwise the rank alone.
func (e *Engine) lostWithHost(rank int, why error) (list []int) {
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

// translateAll is translate for Options.All, whose calls and rank numbers are those of this
// group.
func (e *Engine) translateAll(f *engine.Failure) *engine.Failure {
	if f.Told {
		return e.adopt(f)
	}
	t := *f
	if t.Interrupted() {
		e.correctWait(&t)
	}
	return &t
}

// correctWait corrects the Wait of a rank that was interrupted between two steps. The inner
// group reports that its operation had not begun, although this rank's had. Whether another
// rank's operation had begun is not known here; that rank was at least about to wait.
func (e *Engine) correctWait(f *engine.Failure) {
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

// addRelay adds the ranks for which the failed rank may have waited indirectly. A leader may
// wait for ranks of its host. The other ranks of a host wait for their leader, which may wait
// for other hosts.
func (e *Engine) addRelay(f *engine.Failure, p *subgroup) {
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
	case p == &e.leaderGroup && len(mates) > 0:
		w.Relay, w.Beyond = engine.HostsWait, mates
	case p == &e.leaderGroup || len(far) == 0:
	case f.Rank != leader:
		w.Relay, w.Beyond, w.Leader = engine.LeaderWaits, far, leader
	case f.Rank == e.rank && !e.leadersRan:
		w.Relay, w.Beyond = engine.HostsNotAsked, far
	}
}
