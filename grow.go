package tutti

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/membership"
)

// Grow admits n new processes and returns a new Comm. Its first ranks are the ranks of
// this Comm, in their order. The new processes follow, in the order in which they have
// called Join with Config.Late. All ranks call Grow with the same n; it waits until n
// processes have called Join. Grow closes the old Comm.
//
// If n is zero, Grow does not wait: it admits all processes that wait in Join. If there
// are none, it returns this Comm itself. That takes a Broadcast and a request to the
// store, on the order of a millisecond. A training loop calls it now and then.
//
// Grow is an operation: if it fails, the Comm is poisoned, and Shrink continues without
// the lost ranks. If a rank or a new process exits while the new Comm is made, the new
// Comm has fewer ranks. Only the Comm of Join, and the Comms that Shrink and Grow make
// from it, can grow, in a job with a store; other Comms return ErrUnsupported and stay healthy.
// With an error the result is nil: keep the old Comm to call Shrink on it.
func (c *Comm) Grow(ctx context.Context, n int) (*Comm, error) {
	const op = "Grow"
	if err := c.mayDecide(ctx, op); err != nil {
		return nil, err
	}
	switch {
	case n < 0 || n > membership.MaxRanks-c.size:
		return nil, c.refuse(op, &cause{kind: ErrInvalid, reason: fmt.Sprintf("%d new ranks; the number must be 0 to %d", n, membership.MaxRanks-c.size)})
	case !c.member.CanGrow():
		return nil, c.refuse(op, &cause{kind: ErrUnsupported, reason: "only the Comm of all processes of a job with a store can grow; start the job by tutti run --elastic, or set TUTTI_STORE, and call Grow on the Comm that Join returned, or on its successor"})
	}
	ctx, cancel := c.member.Bound(ctx)
	defer cancel()
	wait := n > 0
	if !wait {
		var err error
		if n, err = c.waiting(ctx, op); err != nil || n == 0 {
			return c.thisOr(err)
		}
	}
	seq, err := c.startGrow(ctx, op, n)
	if err != nil {
		return nil, err
	}
	c.stopAccepting()
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

// startGrow waits until all ranks have called Grow, and have so completed the operations before it.
// It returns the number of the first operation of Grow.
//
// When it returns on rank 0, which decides, no rank that runs waits for another one any more. A rank
// that waited for a host that does not answer would come too late for the next Comm. The operation
// in which all ranks wait for each other therefore comes before one in which rank 0 alone waits for
// the others.
func (c *Comm) startGrow(ctx context.Context, op string, n int) (seq uint64, err error) {
	name := engine.MethodName(fmt.Sprintf("%s(%d)", op, n))
	if seq, err = c.do(ctx, &engine.Call{Verb: engine.Dup, Method: op, Name: name}); err != nil {
		return 0, err
	}
	var result Buffer
	if c.rank == 0 {
		result = Of([]int64{0})
	}
	call := reduce(result, Of([]int64{0}), Sum, 0)
	call.Method, call.Name = op, name
	_, err = c.do(ctx, &call)
	return seq, err
}

// thisOr returns this Comm, or the error if err is not nil.
func (c *Comm) thisOr(err error) (*Comm, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// failAll poisons the Comm on all ranks. Without that, the other ranks would wait for this rank,
// which has failed in one step of Grow.
func (c *Comm) failAll(ctx context.Context, op string, seq uint64, err error) error {
	kind := membership.Undecided(ctx, err).Kind
	c.e.Fail(&engine.Failure{Kind: kind, Op: op, Seq: seq, Rank: c.rank, Facts: engine.Facts{Text: membership.Text(err)}, Err: err})
	return c.failure(c.e.Failure(), op, seq)
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
	call.Method, call.Name = op, engine.MethodName(op+"(0)")
	_, err := c.do(ctx, &call)
	return int(n[0]), err
}
