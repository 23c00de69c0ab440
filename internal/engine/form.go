package engine

import (
	"context"
	"errors"
	"slices"
)

// While returns a context that ends with ctx, or when the group fails: its cause
// is the failure then. Cancel gives back what it holds.
func While(ctx context.Context, e Engine) (while context.Context, cancel func()) {
	while, end := context.WithCancelCause(ctx)
	stop := afterFailure(e, func() { end(e.Failure()) })
	return while, func() {
		stop()
		end(nil)
	}
}

// forming is what the making of a group is called in a failure.
const forming = "Sub"

// Form makes this rank's side of a group of some of parent's ranks by create,
// whose context ends when parent fails, and returns it when all members have
// come: none is left waiting in the new group for one that will never have it.
//
// What goes wrong before that is parent's failure, as it is with any operation,
// and ends the making on all members. One that has the group by then is told in
// the group itself.
func Form(ctx context.Context, parent Engine, members []int, create func(context.Context) (Engine, error)) (Engine, error) {
	formingFailed := Facts{Event: FormingFailed, Ranks: members}
	making, cancel := While(ctx, parent)
	sub, err := create(making)
	cancel()
	if err != nil {
		return nil, Spoil(ctx, parent, formingFailed, err)
	}
	inherit := func() { sub.Fail(inherited(parent.Failure(), members, sub.Rank())) }
	stop := afterFailure(parent, inherit)
	failed, f := parent.Failure() != nil, (*Failure)(nil)
	if !failed { // otherwise nobody is to have the group
		err = sub.Run(ctx, 0, []Call{{Verb: Barrier, Method: forming, Name: "the group is made"}})
	}
	errors.As(err, &f)
	switch well := stop(); {
	case well && !failed && err == nil:
		return sub, nil
	case parent.Failure() != nil:
	case f == nil:
		_ = Spoil(ctx, parent, formingFailed, err)
	case f.Op != forming:
		return sub, nil // another member had it already, and has ended it
	default:
		parent.Fail(lifted(f, members, parent.Size()))
	}
	inherit()
	_ = sub.Close() // the first cause is the one to report
	return nil, own(ended(parent), f, parent.Rank())
}

// ended returns the first cause of a group that has one. When it returns, the
// group has ended for those who wait for that, too.
func ended(e Engine) *Failure {
	f := e.Failure()
	told := *f
	told.Told = true
	e.Fail(&told)
	return f
}

// own is the first cause as the rank reports it where that began. Another rank may
// have told of it before, without what this one saw.
func own(first, saw *Failure, rank int) *Failure {
	if saw == nil || saw.Err == nil || first.Err != nil || first.Rank != rank {
		return first
	}
	f := *first
	f.Err = saw.Err
	return &f
}

// Spoil ends a group because something that belongs to one of its operations
// failed outside of Run, unless the group has failed already. It returns the
// first cause. Ctx is the operation's, and what says what was tried: Spoil adds
// err to it.
func Spoil(ctx context.Context, e Engine, what Facts, err error) *Failure {
	if e.Failure() != nil {
		return ended(e)
	}
	f := &Failure{Kind: ErrAborted, Rank: e.Rank(), Err: err, Facts: what}
	f.Text = err.Error()
	if ctx.Err() != nil {
		f.Err = ctx.Err()
	}
	if errors.Is(err, ErrTimeout) || errors.Is(f.Err, context.DeadlineExceeded) {
		f.Kind = ErrTimeout
	}
	e.Fail(f)
	return e.Failure()
}

// inherited is the failure of a new group, as its rank of that number reports
// it, because the one that it was being made of has failed.
func inherited(f *Failure, members []int, rank int) *Failure {
	sub := &Failure{Kind: f.Kind, Op: forming, Rank: rank, Left: f.Left, Facts: Facts{Event: ParentFailed, Cause: f}}
	for _, r := range f.Lost {
		if i := slices.Index(members, r); i >= 0 {
			sub.Lost = append(sub.Lost, i)
		} else {
			sub.Above = append(sub.Above, r)
		}
	}
	if sub.Lost == nil && errors.Is(f.Kind, ErrRankLost) {
		sub.Kind = ErrAborted // all ranks of this group are there
	}
	return sub
}

// lifted is the failure of a group of so many ranks because a new one could not be
// made of it. Others may know of it, but perhaps of another before it. If it is
// that this group has lost ranks, as another member has found before this one, it
// says just that.
func lifted(f *Failure, members []int, size int) *Failure {
	up := &Failure{Kind: f.Kind, Rank: members[f.Rank], Left: f.Left, Err: f.Err}
	for _, i := range f.Lost {
		up.Lost = append(up.Lost, members[i])
	}
	own := &Failure{Kind: f.Kind, Rank: up.Rank, Lost: slices.Clone(up.Lost), Left: f.Left, Facts: f.Renumber(members)}
	for _, r := range f.Above {
		if r >= 0 && r < size && !slices.Contains(up.Lost, r) {
			up.Kind, up.Lost = ErrRankLost, append(up.Lost, r)
		}
	}
	up.Facts = Facts{Event: FormingFailed, Ranks: members, Cause: own}
	if f.Event == ParentFailed && f.Cause != nil {
		up.Cause = f.Cause
		if up.Lost != nil && !up.Left {
			up.Event = LostWhileForming
		}
	}
	return up
}

// afterFailure has f called, beside whoever runs, when a group has failed.
func afterFailure(e Engine, f func()) (stop func() bool) {
	if h, ok := e.(Hosted); ok {
		return h.Host().AfterFunc(life{context.Background(), e}, f)
	}
	return context.AfterFunc(life{context.Background(), e}, f)
}

// A life is a context that ends when a group fails.
type life struct {
	context.Context
	e Engine
}

// Done is closed when the group has failed.
func (l life) Done() <-chan struct{} { return l.e.Failed() }

// Err is the failure.
func (l life) Err() error {
	select {
	case <-l.e.Failed():
		return l.e.Failure()
	default:
		return nil
	}
}
