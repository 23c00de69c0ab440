package tutti

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/membership"
)

// Grow lets n new processes in and returns a new Comm: its first ranks are those
// of this one, in their order, and then come the new ones, in the order in which
// they have called Join with Config.Late. All ranks call Grow with the same n;
// it waits until so many have come. The old Comm is closed.
//
// If n is zero it waits for nobody: it lets in whoever has come, and if that is
// nobody it returns this Comm itself, which goes on. That costs a Broadcast, and
// a look into the store, of the order of a millisecond: a loop asks now and then.
//
// It is an operation as others are: when it fails, the Comm is poisoned, and
// Shrink goes on without whoever was lost. Should one of the ranks, or of the
// new processes, die while the new Comm is made, that has fewer ranks than
// asked for. Only a Comm of Join, and those that follow it, can grow.
func (c *Comm) Grow(ctx context.Context, n int) (*Comm, error) {
	const op = "Grow"
	if err := c.mayDecide(ctx, op); err != nil {
		return nil, err
	}
	switch {
	case n < 0 || n > membership.MaxRanks-c.size:
		return nil, c.refuse(op, &cause{kind: ErrInvalid, reason: fmt.Sprintf("%d new ranks", n)})
	case !c.member.CanGrow():
		return nil, c.refuse(op, &cause{kind: ErrUnsupported, reason: "only the Comm of all processes of a job can grow; call Grow on the Comm that Join returned, or on its successor"})
	}
	ctx, cancel := c.member.Bound(ctx)
	defer cancel()
	wait := n > 0
	if !wait {
		var err error
		if n, err = c.waiting(ctx, op); err != nil || n == 0 {
			return c.unless(err)
		}
	}
	// Once all ranks have called Grow, all have completed the operations before it.
	seq, err := c.do(ctx, &engine.Call{Verb: engine.Dup, Method: op, Name: fmt.Sprint(op, " by ", n)})
	if err != nil {
		return nil, err
	}
	c.seal()
	if err := c.settle(ctx); err != nil {
		return nil, c.failAll(ctx, op, seq, err)
	}
	successor, err := c.member.Grow(ctx, seq-1, n, wait)
	if err != nil {
		return nil, c.failAll(ctx, op, seq, err)
	}
	c.retire(true)
	return c.follow(ctx, op, successor)
}

// unless returns this Comm, or the error if there is one.
func (c *Comm) unless(err error) (*Comm, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// failAll poisons the Comm. The other ranks wait for what this rank did not count, decide or
// form.
func (c *Comm) failAll(ctx context.Context, op string, seq uint64, err error) error {
	kind := membership.Undecided(ctx, err).Kind
	c.e.Fail(&engine.Failure{Kind: kind, Op: op, Seq: seq, Rank: c.rank, Reason: err.Error(), Err: err})
	return c.failure(c.e.Failure())
}

// waiting returns the number of processes that wait for admission. Rank 0 counts them.
func (c *Comm) waiting(ctx context.Context, op string) (int, error) {
	n := []int64{0}
	if c.rank == 0 {
		var err error
		if n[0], err = c.member.Waiting(ctx); err != nil {
			return 0, c.failAll(ctx, op, 0, err)
		}
	}
	call := broadcast(Of(n), 0)
	call.Method = op
	_, err := c.do(ctx, &call)
	return int(n[0]), err
}
