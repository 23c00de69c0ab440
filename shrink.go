package tutti

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/membership"
	"github.com/tutti-go/tutti/internal/wait"
)

// Shrink returns a new Comm of the ranks that are not lost. They keep their order and
// are numbered from 0. All of them call Shrink. It poisons the Comm if nothing else
// has, so that ranks that have not noticed a loss return from their operations and call
// Shrink, too. A rank that runs but does not call it within Config.ShrinkTimeout is
// excluded; its later call returns ErrExcluded.
//
// done is the number of the last operation on the old Comm that all ranks of the new
// Comm have completed. It is the same on all of them. Some ranks may have completed
// later operations. A program whose steps consist of several operations notes Comm.Seq
// after each step, or Work.Seq: all ranks have completed a step whose number is at most
// done, and repeat the others.
//
// Shrink closes the old Comm, on which later calls return ErrClosed. If it fails because the store cannot be reached, or
// because ctx ended, it may be called again. In a job without a store it returns
// ErrUnsupported.
func (c *Comm) Shrink(ctx context.Context) (next *Comm, done uint64, err error) {
	const op = "Shrink"
	if err := c.mayDecide(ctx, op); err != nil {
		return nil, 0, err
	}
	ctx, cancel := c.member.Bound(ctx)
	defer cancel()
	if err := c.freeze(ctx, op); err != nil {
		return nil, 0, err
	}
	successor, err := c.member.Shrink(ctx, c.completed())
	if err != nil {
		return nil, 0, c.undecided(ctx, op, err)
	}
	c.retire(false)
	next, err = c.follow(ctx, op, successor)
	return next, successor.Completed(), err
}

// mayDecide returns an error if this Comm cannot have a successor.
func (c *Comm) mayDecide(ctx context.Context, op string) error {
	switch {
	case c == nil:
		return &Error{Op: op, Cause: &cause{kind: ErrInvalid, reason: "the Comm is nil; call it on the Comm that failed, as a failed Shrink or Grow returns none"}}
	case ctx == nil:
		return c.refuse(op, &cause{kind: ErrInvalid, reason: errNilContext.Error()})
	case c.replaced.Load():
		return c.refuse(op, errReplaced)
	case c.shut.Load():
		return c.refuse(op, errOver)
	case !c.member.CanDecide():
		return c.refuse(op, &cause{
			kind:   ErrUnsupported,
			reason: "the job has no store, which the ranks need to agree; start it with tutti run or torchrun, or serve a store (store.Listen) and set TUTTI_STORE",
		})
	}
	return nil
}

// undecided returns the error of a call that got no answer from the store.
func (c *Comm) undecided(ctx context.Context, op string, err error) error {
	return c.refuse(op, membership.Undecided(ctx, err))
}

// freeze poisons the Comm, and waits until none of this rank's operations is under way. No
// operation completes afterwards.
func (c *Comm) freeze(ctx context.Context, op string) error {
	c.stopAccepting()
	if c.e.Failure() == nil && !c.member.Decided() {
		c.e.Fail(&engine.Failure{
			Kind: ErrRevoked, Op: op, Rank: c.rank, Facts: engine.Facts{Event: engine.OpCalled},
		})
	}
	if err := c.settle(ctx); err != nil {
		return c.undecided(ctx, op, err)
	}
	return nil
}

// settle waits until none of this rank's operations is under way.
func (c *Comm) settle(ctx context.Context) error {
	w := wait.NewWaiter(c.lot)
	w.Begin(ctx, 0)
	err := w.For((*idle)(c))
	w.End()
	if err != nil {
		return fmt.Errorf("operations that this rank has started have not ended: %w", err)
	}
	return nil
}

// completed returns the number of the last operation that this rank has completed. No
// operation may be under way. Operations run in order, and none runs after a failed one.
func (c *Comm) completed() uint64 {
	if first := c.queue.failedAt.Load(); first != 0 {
		return first - 1
	}
	return c.queue.started()
}

// noteFailed records the number of an operation that failed.
func (c *Comm) noteFailed(seq uint64) {
	for {
		first := c.queue.failedAt.Load()
		if first != 0 && first <= seq || c.queue.failedAt.CompareAndSwap(first, seq) {
			return
		}
	}
}

// retire closes a Comm whose successor is decided. It waits for the other ranks only if
// patient is true, and then only as long as they can wait for this rank in the successor.
func (c *Comm) retire(patient bool) {
	c.release()
	c.member.Retire(c.lot, patient)
}

// follow forms the successor.
func (c *Comm) follow(ctx context.Context, op string, s *membership.Successor) (*Comm, error) {
	m, err := s.Form(ctx)
	if err != nil {
		return nil, c.refuse(op, err)
	}
	c.replaced.Store(true)
	return newComm(m, c.reports.Reporter()), nil
}
