package enginetest

import (
	"context"
	"errors"

	"github.com/tutti-go/tutti/internal/engine"
)

// formingCases are groups of which not all members come: nobody waits in the new
// group for one that will never have it, and the group that it was to be made of
// has failed on all ranks, for one reason.
func formingCases() []Case {
	const missing = 0
	why := &engine.Failure{Kind: engine.ErrAborted, Rank: missing, Facts: engine.Facts{Text: errOnPurpose.Error()}}
	add := func(name string, fault Fault, absent, member func(context.Context, *Rank, []int) error) Case {
		return Case{
			Name: "forming/" + name, Ranks: 3, Fault: &fault,
			Body: func(ctx context.Context, r *Rank) error {
				members := []int{2, 1, 0} // other numbers than in the group
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
			return r.sawOwn(notFormed(r.sub(lateCancel(ctx), members)), context.Canceled)
		}
		return notFormed(r.sub(ctx, members))
	}
	isLate := func(ctx context.Context, r *Rank, members []int) error {
		return r.sawOwn(notFormed(r.sub(lateDeadline(ctx), members)), context.DeadlineExceeded)
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

// notFormed is the error of a group that could not be made.
func notFormed(sub *Rank, err error) error {
	if err == nil {
		return errors.Join(errors.New("a group was made that one of its ranks has not come to"), sub.Close())
	}
	return err
}
