package tutti

import (
	"context"
	"fmt"
)

// AllReduceValue combines one value of each rank and returns the result to all.
func AllReduceValue[T Elem](ctx context.Context, c *Comm, v T, op Op) (T, error) {
	buf := []T{v}
	err := c.AllReduce(ctx, Of(buf), op)
	return buf[0], err
}

// BroadcastSlice returns the root's slice on every rank, in newly allocated memory on all but the
// root. The other ranks need not know its length, and pass nil.
func BroadcastSlice[T Elem](ctx context.Context, c *Comm, s []T, root int) ([]T, error) {
	length := []int{len(s)}
	if err := c.Broadcast(ctx, Of(length), root); err != nil {
		return nil, err
	}
	if c.Rank() != root {
		s = make([]T, length[0])
	}
	if err := c.Broadcast(ctx, Of(s), root); err != nil {
		return nil, err
	}
	return s, nil
}

// AllGatherSlices returns the slices of all ranks, in rank order, on every rank. The
// slices may have different lengths, which the ranks need not know. The result is
// newly allocated.
func AllGatherSlices[T Elem](ctx context.Context, c *Comm, mine []T) ([][]T, error) {
	counts := make([]int, c.Size())
	if err := c.AllGather(ctx, Of(counts), Of([]int{len(mine)})); err != nil {
		return nil, err
	}
	flat, parts := partition[T](counts)
	if err := c.AllGatherV(ctx, Of(flat).Parts(nil, counts...), Of(mine)); err != nil {
		return nil, err
	}
	return parts, nil
}

// AllToAllSlices sends shares[r] to rank r and returns what the ranks have sent to this
// one, by rank. The slices may have different lengths, which the receivers need not know. The
// result is newly allocated.
func AllToAllSlices[T Elem](ctx context.Context, c *Comm, shares [][]T) ([][]T, error) {
	if len(shares) != c.Size() {
		return nil, c.refuse("AllToAllSlices", &cause{kind: ErrInvalid, reason: fmt.Sprintf("%d slices for %d ranks; pass one slice for each rank", len(shares), c.Size())})
	}
	out, in := make([]int, c.Size()), make([]int, c.Size())
	src := make([]Buffer, c.Size())
	for r, s := range shares {
		out[r], src[r] = len(s), Of(s)
	}
	if err := c.AllToAll(ctx, Of(in), Of(out)); err != nil {
		return nil, err
	}
	flat, parts := partition[T](in)
	if err := c.AllToAllV(ctx, Of(flat).Parts(nil, in...), src); err != nil {
		return nil, err
	}
	return parts, nil
}

// partition returns memory for slices of the given lengths, as one slice and as its parts.
func partition[T Elem](lengths []int) (flat []T, parts [][]T) {
	total := 0
	for _, n := range lengths {
		total += n
	}
	flat = make([]T, total)
	rest := flat
	for _, n := range lengths {
		parts = append(parts, rest[:n:n])
		rest = rest[n:]
	}
	return flat, parts
}
