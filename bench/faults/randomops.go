package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/tutti-go/tutti"
)

// randomOps are random operations with known results.
type randomOps struct {
	c   *tutti.Comm
	rnd *rand.Rand // the same on all ranks
}

// A wrongError is a wrong result.
type wrongError struct{ text string }

func (e *wrongError) Error() string { return e.text }

// runOne runs one operation, which rnd chooses, and checks its result. It sets the flag during the
// call. It returns the operation's error, or a wrongError for a wrong result.
func (m *randomOps) runOne(ctx context.Context, n *operationFlag) error {
	c := m.c
	size, me := c.Size(), c.Rank()
	elems := 1 << m.rnd.IntN(17)
	root, shift := m.rnd.IntN(size), m.rnd.IntN(1000)
	value := func(rank, i int) float32 { return float32(rank + (i+shift)%1000) }
	fill := func(n, rank, from int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = value(rank, from+i)
		}
		return x
	}
	sum := func(i int) float32 { return float32(size*(size-1)/2 + size*((i+shift)%1000)) }
	do := func(what string, got []float32, want func(i int) float32, f func() error) error {
		n.enter()
		err := f()
		n.leave()
		if err != nil {
			return err
		}
		for i, v := range got {
			if v != want(i) {
				return &wrongError{fmt.Sprintf("%s of %d elements on rank %d: element %d is %v, want %v", what, elems, me, i, v, want(i))}
			}
		}
		return nil
	}
	switch m.rnd.IntN(10) {
	case 0, 1:
		x := fill(elems, me, 0)
		return do("AllReduce", x, sum, func() error { return c.AllReduce(ctx, tutti.Of(x), tutti.Sum) })
	case 2:
		x := fill(elems, me, 0)
		return do("Broadcast", x, func(i int) float32 { return value(root, i) }, func() error { return c.Broadcast(ctx, tutti.Of(x), root) })
	case 3:
		x, all := fill(elems, me, 0), make([]float32, size*elems)
		return do("AllGather", all, func(i int) float32 { return value(i/elems, i%elems) },
			func() error { return c.AllGather(ctx, tutti.Of(all), tutti.Of(x)) })
	case 4:
		x, part := fill(size*elems, me, 0), make([]float32, elems)
		return do("ReduceScatter", part, func(i int) float32 { return sum(me*elems + i) },
			func() error { return c.ReduceScatter(ctx, tutti.Of(part), tutti.Of(x), tutti.Sum) })
	case 5:
		x, y := fill(size*elems, me, 0), make([]float32, size*elems)
		return do("AllToAll", y, func(i int) float32 { return value(i/elems, me*elems+i%elems) },
			func() error { return c.AllToAll(ctx, tutti.Of(y), tutti.Of(x)) })
	case 6:
		return do("Barrier", nil, nil, func() error { return c.Barrier(ctx) })
	case 7:
		x, y := fill(elems, me, 0), make([]float32, elems)
		return do("SendRecv", y, func(i int) float32 { return value((me+size-1)%size, i) },
			func() error { return c.SendRecv(ctx, (me+1)%size, tutti.Of(x), (me+size-1)%size, tutti.Of(y), 1) })
	case 8:
		x := fill(elems, me, 0)
		return do("Scan", x, func(i int) float32 { return float32(me*(me+1)/2 + (me+1)*((i+shift)%1000)) },
			func() error { return c.Scan(ctx, tutti.Of(x), tutti.Of(x), tutti.Sum) })
	}
	x, y := fill(elems, me, 0), fill(7, me, 0)
	err := do("Batch", x, sum, func() error {
		w, err := c.Batch().AllReduce(tutti.Of(x), tutti.Sum).AllReduce(tutti.Of(y), tutti.Sum).Start(ctx)
		if err != nil {
			return err
		}
		return w.Wait(context.Background())
	})
	if err != nil {
		return err
	}
	return do("Batch", y, sum, func() error { return nil })
}
