package engine

import (
	"context"
	"errors"
	"slices"
)

// UntilFailure returns a context that ends with ctx, or when the group fails. Its cause is
// the failure then. The caller calls cancel to release its resources.
func UntilFailure(ctx context.Context, e Engine) (while context.Context, cancel func()) {
	while, end := context.WithCancelCause(ctx)
	stop := AfterFailure(e, func() { end(e.Failure()) })
	return while, func() {
		stop()
		end(nil)
	}
}

// forming is the name of the operation that makes a group.
const forming = "Sub"

// Form makes this rank's engine of a group of some of parent's ranks with create. The
// context of create ends when parent fails. Form returns the engine when all members
// have made theirs. So no member waits in the new group for a rank that cannot join it.
//
// An error before that fails parent, like the error of any operation, and Form fails on
// all members. The new group fails, too, on members where Form has returned already.
func Form(ctx context.Context, parent Engine, members []int, create func(context.Context) (Engine, error)) (Engine, error) {
	formingFailed := Facts{Event: FormingFailed, Ranks: members}
	making, cancel := UntilFailure(ctx, parent)
	sub, err := create(making)
	cancel()
	if f := (*Failure)(nil); errors.As(err, &f) && parent.Failure() == nil && f.Rank >= 0 && f.Rank < len(members) {
		parent.Fail(lifted(f, members, parent.Size())) // another member has ended the new group
		return nil, own(ended(parent), f, parent.Rank())
	}
	if err != nil {
		return nil, FailGroup(ctx, parent, formingFailed, err)
	}
	inherit := func() { sub.Fail(inherited(parent.Failure(), members, sub.Rank())) }
	stop := AfterFailure(parent, inherit)
	failed, f := parent.Failure() != nil, (*Failure)(nil)
	if !failed { // otherwise no member returns the group
		err = sub.Run(ctx, 0, []Call{{Verb: Barrier, Method: forming, Name: MethodName("Split or Dup, at its end")}})
	}
	errors.As(err, &f)
	switch well := stop(); {
	case well && !failed && err == nil:
		return sub, nil
	case parent.Failure() != nil:
	case f == nil:
		_ = FailGroup(ctx, parent, formingFailed, err)
	case f.Op != forming:
		return sub, nil // another member's Form had returned, and that member has ended the group
	default:
		parent.Fail(lifted(f, members, parent.Size()))
	}
	inherit()
	_ = sub.Close() // parent's failure is reported instead
	return nil, own(ended(parent), f, parent.Rank())
}

// ended returns the first failure of a group that has failed. When it returns,
// e.Failed is closed.
func ended(e Engine) *Failure {
	f := e.Failure()
	again := *f
	again.Told = true
	e.Fail(&again)
	return f
}

// own returns the failure that rank reports if first is the group's failure. If first began
// on rank itself, but reached it through another rank without Err, own adds the Err of saw.
func own(first, saw *Failure, rank int) *Failure {
	if saw == nil || saw.Err == nil || first.Err != nil || first.Rank != rank {
		return first
	}
	f := *first
	f.Err = saw.Err
	return &f
}

// FailGroup ends a group because a part of one of its operations failed outside of Run,
// unless the group has failed already. It returns the group's first failure. ctx is the
// operation's context. what describes the attempt; FailGroup adds err to it.
func FailGroup(ctx context.Context, e Engine, what Facts, err error) *Failure {
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

// inherited returns the failure of a new group whose parent group has failed with f. rank
// is this rank's number in the new group.
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
		sub.Kind = ErrAborted // no rank of this group is lost
	}
	return sub
}

// lifted returns the failure of a parent group of size ranks because of f, the failure of
// the new group. Told is false, because other ranks may know of an earlier failure of the
// parent. If another member has already found that the parent has lost ranks, the result
// reports that loss.
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

// AfterFailure calls f on another goroutine when a group has failed. stop is that of
// context.AfterFunc.
func AfterFailure(e Engine, f func()) (stop func() bool) {
	if h, ok := e.(Hosted); ok {
		return h.Host().AfterFunc(groupContext{context.Background(), e}, f)
	}
	return context.AfterFunc(groupContext{context.Background(), e}, f)
}

// A groupContext is a context that ends when a group fails.
type groupContext struct {
	context.Context
	e Engine
}

// Done is closed when the group has failed.
func (l groupContext) Done() <-chan struct{} { return l.e.Failed() }

// Err returns the failure.
func (l groupContext) Err() error {
	select {
	case <-l.e.Failed():
		return l.e.Failure()
	default:
		return nil
	}
}
