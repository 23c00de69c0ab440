package tutti

import "context"

// ReduceValue combines one value of each rank and returns the result to all.
func ReduceValue[T Elem](ctx context.Context, c *Comm, v T, op Op) (T, error) {
	buf := []T{v}
	err := c.AllReduce(ctx, Of(buf), op)
	return buf[0], err
}

// GatherSlices returns the slices of all ranks, in rank order, on every rank. The
// slices may have different lengths, which the ranks need not know. The result is
// newly allocated.
func GatherSlices[T Elem](ctx context.Context, c *Comm, mine []T) ([][]T, error) {
	counts := make([]int, c.Size())
	if err := c.AllGather(ctx, Of(counts), Of([]int{len(mine)})); err != nil {
		return nil, err
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	flat := make([]T, total)
	if err := c.AllGatherV(ctx, Of(flat).Parts(nil, counts...), Of(mine)); err != nil {
		return nil, err
	}
	all := make([][]T, len(counts))
	for r, n := range counts {
		all[r], flat = flat[:n:n], flat[n:]
	}
	return all, nil
}
