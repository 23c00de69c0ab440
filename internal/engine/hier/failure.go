package hier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	return &engine.Failure{Kind: engine.ErrAborted, Reason: err.Error(), Err: err}
}

// translate makes a failure of this group of one that began in an inner group.
// One that others know of came from there, and is this group's already.
func (e *Engine) translate(ctx context.Context, f *engine.Failure, p *part) *engine.Failure {
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
	what, where := cut(ctx, f.Reason)
	where, named := reword(where, p.ranks)
	t.Reason = e.locate(t.Rank, what, where)
	if errors.Is(f, engine.ErrTimeout) || errors.Is(f, engine.ErrAborted) {
		t.Reason += e.behind(t.Rank, named, p)
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
func (e *Engine) translateAll(ctx context.Context, f *engine.Failure) *engine.Failure {
	if f.Told {
		return e.heard(f)
	}
	t := *f
	what, where := cut(ctx, f.Reason)
	t.Reason = e.locate(t.Rank, what, where)
	return &t
}

// cut divides the reason of a failure for which a context is to blame into what
// happened, of which the user's own text may be a part, and where. The context
// may be that of another rank, whose text is not known here.
func cut(ctx context.Context, reason string) (what, where string) {
	if what, found := strings.CutSuffix(reason, engine.NotBegun); found {
		return what, engine.NotBegun
	}
	for _, what := range []string{engine.Cancelled(ctx), engine.Expired} {
		if where, found := strings.CutPrefix(reason, what); found {
			return what, where
		}
	}
	return "", reason
}

// locate puts the two together again. What happened to a rank between two steps
// happened, for an inner group, before it began. How far another rank had come
// is not known here: perhaps it had not begun, but then it was about to.
func (e *Engine) locate(rank int, what, where string) string {
	if what == "" || words.MatchString(where) || rank == e.rank && !e.begun {
		return what + where
	}
	var others []int
	for r := range e.hosts {
		if r != rank {
			others = append(others, r)
		}
	}
	return what + "it was about to wait for " + engine.Ranks(others)
}

// behind says whom else the rank that failed may have been waiting for, apart
// from the named ones: a leader waits for its host, and inside a host the others
// wait for their leader, which waits for other hosts.
func (e *Engine) behind(rank int, named []int, p *part) string {
	var mates, far []int
	for r, host := range e.hosts {
		if host == e.hosts[rank] {
			continue
		}
		far = append(far, r)
		if host != r && slices.Contains(named, host) {
			mates = append(mates, r)
		}
	}
	switch leader := e.hosts[rank]; {
	case p == &e.across && len(mates) > 0:
		return fmt.Sprintf("; who leads a host may be waiting for others there (%s)", engine.Ranks(mates))
	case p == &e.across || len(far) == 0:
		return ""
	case rank != leader:
		return fmt.Sprintf("; rank %d may be waiting for other hosts (%s)", leader, engine.Ranks(far))
	case rank == e.rank && !e.crossed:
		return fmt.Sprintf("; other hosts (%s) have not been asked yet", engine.Ranks(far))
	}
	return ""
}
