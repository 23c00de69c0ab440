package tutti

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tutti-go/tutti/internal/engine"
)

// NoGroup is the colour of a rank that joins none of the new groups.
const NoGroup = -1

// Split divides the ranks into new groups, one for each colour, and returns a new Comm
// of this rank's group, which the caller closes. Within a group, ranks are ordered by
// key, and by rank where keys are equal. A rank with the colour NoGroup gets a nil Comm.
//
// Split returns when all members of the group have called it. If it fails, c is poisoned
// as by any operation, and so is the group on ranks where Split has returned already.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	if color < 0 && color != NoGroup {
		return nil, c.refuse("Split", &cause{kind: ErrInvalid, reason: fmt.Sprintf("the colour %d is negative; use zero or more, or NoGroup", color)})
	}
	leave, err := c.stay("Split")
	if err != nil {
		return nil, err
	}
	defer leave()
	mine := []int64{int64(color), int64(key)}
	all := make([]int64, 2*c.size)
	seq, err := c.do(ctx, &engine.Call{Verb: engine.Split, Dst: Of(all).m, Src: Of(mine).m})
	if err != nil || color == NoGroup {
		return nil, err
	}
	var members []int
	for r := range c.size {
		if all[2*r] == int64(color) {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(all[2*a+1], all[2*b+1]) })
	return c.sub(ctx, "Split", seq, members)
}

// SplitHost is Split into the groups of ranks that share a host.
func (c *Comm) SplitHost(ctx context.Context) (*Comm, error) {
	return c.Split(ctx, c.e.SameHost()[c.rank], c.rank)
}

// Dup returns a new Comm of the same ranks, which is independent of this one; see Split. All ranks must call
// it. A failure while the ranks make the new Comm poisons this one. Close waits for a Dup in progress.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	leave, err := c.stay("Dup")
	if err != nil {
		return nil, err
	}
	defer leave()
	seq, err := c.do(ctx, &engine.Call{Verb: engine.Dup})
	if err != nil {
		return nil, err
	}
	members := make([]int, c.size)
	for r := range members {
		members[r] = r
	}
	return c.sub(ctx, "Dup", seq, members)
}

// stay makes Close and Shrink wait until leave is called. It is for operations that
// continue after their turn.
func (c *Comm) stay(op string) (leave func(), err error) {
	if err := c.acquire(op); err != nil {
		c.awaitReport()
		return nil, err
	}
	return c.done, nil
}

// sub returns the Comm of the group that operation seq has made of some ranks.
func (c *Comm) sub(ctx context.Context, op string, seq uint64, members []int) (*Comm, error) {
	e, err := c.e.Sub(ctx, seq, members)
	if err != nil {
		c.noteFailed(seq)
		return nil, c.report(err, op, seq)
	}
	return newComm(c.member.Group(e, seq, members), c.reports.Reporter()), nil
}
