package enginetest

import (
	"context"
	"errors"

	"github.com/tutti-go/tutti/internal/engine"
)

// formingCases are groups that not all members join. No rank waits in the new group for a member that never
// joins, and the parent group fails on all ranks with one cause. Each rank runs its body on a goroutine of
// its own.
func formingCases() []Case {
	const missing = 0
	why := &engine.Failure{Kind: engine.ErrAborted, Rank: missing, Facts: engine.Facts{Text: errOnPurpose.Error()}}
	add := func(name string, fault Fault, absent, member func(context.Context, *Rank, []int) error) Case {
		return Case{
			Name: "forming/" + name, Ranks: 3, Fault: &fault,
			Body: func(ctx context.Context, r *Rank) error {
				members := []int{2, 1, 0} // other rank numbers than in the parent
				if err := r.decide(ctx); err != nil {
					return r.failed(ctx, err)
				}
				if r.Rank() == missing {
					return r.failed(ctx, absent(ctx, r, members))
				}
				return r.failed(ctx, member(ctx, r, members))
			},
		}
	}
	fails := func(ctx context.Context, r *Rank, members []int) error {
		r.Fail(why)
		return notFormed(r.sub(ctx, members))
	}
	waits := func(ctx context.Context, r *Rank, members []int) error {
		select {
		case <-r.Failed():
			return notFormed(r.sub(ctx, members))
		case <-ctx.Done():
			return errors.New("the group did not fail")
		}
	}
	comes := func(ctx context.Context, r *Rank, members []int) error { return notFormed(r.sub(ctx, members)) }
	givesUp := func(ctx context.Context, r *Rank, members []int) error {
		if r.Rank() == 2 {
			return r.checkOwnCause(notFormed(r.sub(lateCancel(ctx), members)), context.Canceled)
		}
		return notFormed(r.sub(ctx, members))
	}
	isLate := func(ctx context.Context, r *Rank, members []int) error {
		return r.checkOwnCause(notFormed(r.sub(lateDeadline(ctx), members)), context.DeadlineExceeded)
	}
	said := []string{errOnPurpose.Error()}
	return []Case{
		add("failed", Fault{Kind: engine.ErrAborted, Text: said}, fails, comes),
		add("cancelled", Fault{Kind: engine.ErrAborted, Ranks: []int{missing}, Text: said}, waits, givesUp),
		add("absent", Fault{Kind: engine.ErrTimeout, Ranks: []int{missing}}, waits, isLate),
	}
}

// decide is the operation after which a group is made.
func (r *Rank) decide(ctx context.Context) error {
	r.calls = append(r.calls[:0], engine.Call{Verb: engine.Dup})
	return r.run(ctx)
}

// notFormed returns the error of a group that could not be made.
func notFormed(sub *Rank, err error) error {
	if err == nil {
		return errors.Join(errors.New("a group was made that one of its ranks has not come to"), sub.Close())
	}
	return err
}
