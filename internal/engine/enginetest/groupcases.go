package enginetest

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// groupCases test how groups are made, several groups at the same time, and what a
// group reports about itself.
func groupCases(opt Options) []Case {
	var cases []Case
	for _, ranks := range opt.ranks() {
		add := func(name string, body func(context.Context, *Rank) error) {
			cases = append(cases, Case{Name: fmt.Sprintf("group/%s/ranks=%d", name, ranks), Ranks: ranks, Body: body})
		}
		add("split", func(ctx context.Context, r *Rank) error { return opt.splitHalves(ctx, r, 3) })
		add("at once", opt.atOnce)
		add("alloc", allocate)
		add("hosts", func(_ context.Context, r *Rank) error { return checkHosts(r.SameHost(), r) })
		add("close", opt.closeAtOnce)
		add("fails alone", failsAlone)
	}
	return cases
}

// splitHalves splits a group into halves, in reverse order, and these again, and runs operations in every
// group. It returns the first error.
func (o Options) splitHalves(ctx context.Context, r *Rank, depth int) error {
	if err := o.someOps(ctx, r, 5, uint64(depth)); err != nil || depth == 0 {
		return err
	}
	sub, err := r.Split(ctx, r.Rank()%2, -r.Rank())
	if err != nil {
		return err
	}
	defer sub.Close()
	if err := o.splitHalves(ctx, sub, depth-1); err != nil {
		return err
	}
	// Odd ranks are in no new group; the parent group is used afterwards.
	some, err := r.Split(ctx, -(r.Rank() % 2), 0)
	if err != nil {
		return err
	}
	if some != nil {
		defer some.Close()
		if err := o.someOps(ctx, some, 3, 1); err != nil {
			return err
		}
	}
	return o.someOps(ctx, r, 3, 2)
}

// someOps runs batches of random operations.
func (o Options) someOps(ctx context.Context, r *Rank, batches int, seed uint64) error {
	rnd := random(seed)
	for range batches {
		ops := make([]Op, 1+rnd.below(3))
		for i := range ops {
			ops[i] = o.randomOp(&rnd, func(r *random) int { return r.below(64) << (r.below(3) * 4) })
		}
		if err := r.Do(ctx, ops...); err != nil {
			return err
		}
	}
	return nil
}

// atOnce uses several groups of the same ranks from a goroutine each. Each rank starts them in another order.
// A goroutine that fails makes all groups fail, so that the others end too; atOnce waits for all goroutines.
func (o Options) atOnce(ctx context.Context, r *Rank) error {
	const n = 5
	subs := make([]*Rank, n)
	for i := range subs {
		var err error
		if i%2 == 0 {
			subs[i], err = r.Dup(ctx)
		} else {
			subs[i], err = r.Split(ctx, r.Rank()%i, i*r.Rank()%r.Size())
		}
		if err != nil {
			return err
		}
	}
	errs := make(chan error, n)
	for i := range subs {
		k := (i*(r.Rank()%2*2+1) + r.Rank()) % n // two strides, rotated
		go func() {
			err := o.someOps(ctx, subs[k], 20, uint64(k))
			if err != nil {
				r.FailGroups(err)
			}
			errs <- errors.Join(err, subs[k].Close())
		}()
	}
	first := o.someOps(ctx, r, 20, n)
	if first != nil {
		r.FailGroups(first)
	}
	for range subs {
		first = errors.Join(first, <-errs)
	}
	return first
}

// allocate allocates shared memory, checks that it is zero, and runs operations on
// it.
func allocate(ctx context.Context, r *Rank) error {
	for _, n := range []int{1, 100, 100_000} {
		r.calls = append(r.calls[:0], engine.Call{Verb: engine.Alloc, Src: engine.Mem{N: 8 * n, Type: kernel.Uint8}})
		if err := r.run(ctx); err != nil {
			return err
		}
		region, err := r.Alloc(ctx, r.seq, 8*n)
		if err != nil {
			return err
		}
		if region.Bytes < 8*n || uintptr(region.Ptr)%8 != 0 {
			return fmt.Errorf("Alloc(%d): %d bytes at %p", 8*n, region.Bytes, region.Ptr)
		}
		words := unsafe.Slice((*int64)(region.Ptr), n)
		for i, w := range words {
			if w != 0 {
				return fmt.Errorf("Alloc(%d): word %d is %#x, not zero", 8*n, i, w)
			}
			words[i] = int64(i + r.Rank())
		}
		r.calls = append(r.calls[:0], engine.Call{
			Verb: engine.AllReduce, ReduceOp: engine.Max, Src: int64s(words), Dst: int64s(words),
		})
		if err := r.run(ctx); err != nil {
			return err
		}
		for i, w := range words {
			if want := int64(i + r.Size() - 1); w != want {
				return fmt.Errorf("AllReduce of allocated memory: word %d is %d, want %d", i, w, want)
			}
		}
		if err := errors.Join(r.Do(ctx, Op{Verb: engine.Barrier}), region.Free()); err != nil {
			return err
		}
	}
	return nil
}

// checkHosts checks that each host is named by the lowest rank on it.
func checkHosts(hosts []int, r *Rank) error {
	if len(hosts) != r.Size() {
		return fmt.Errorf("SameHost lists %d ranks of %d", len(hosts), r.Size())
	}
	for rank, host := range hosts {
		if host < 0 || host > rank || hosts[host] != host {
			return fmt.Errorf("SameHost says that rank %d is on host %d of %v", rank, host, hosts)
		}
	}
	return nil
}

// closeAtOnce makes groups that each rank closes as soon as its own operation
// returns. Data that it has sent must still reach the other ranks.
func (o Options) closeAtOnce(ctx context.Context, r *Rank) error {
	for i, v := range o.verbs() {
		for _, n := range []int{3, 30_000} {
			sub, err := r.Dup(ctx)
			if err != nil {
				return err
			}
			op := Op{Verb: v, ReduceOp: engine.Max, Type: kernel.Int32, N: n, Root: i, Seed: uint64(i)}
			if err := errors.Join(sub.Do(ctx, op), sub.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// failsAlone fails a group by a call of Fail on one rank: all its ranks get ErrAborted. The group that it was
// made from must not fail.
func failsAlone(ctx context.Context, r *Rank) error {
	for i := range 3 {
		sub, err := r.Dup(ctx)
		if err != nil {
			return err
		}
		if r.Rank() == i%r.Size() {
			sub.Fail(&engine.Failure{Kind: engine.ErrAborted, Rank: r.Rank(), Facts: engine.Facts{Text: "the small group ends"}})
		}
		err = sub.Try(ctx, Op{Verb: engine.AllToAll, Type: kernel.Int32, N: 3000})
		for err == nil {
			err = sub.Try(ctx, Op{Verb: engine.Barrier})
		}
		if !errors.Is(err, engine.ErrAborted) {
			return fmt.Errorf("the group was aborted, and says %v", err)
		}
		if err := errors.Join(sub.Close(), r.Do(ctx, Op{Verb: engine.AllGather, Type: kernel.Int32, N: 9})); err != nil {
			return err
		}
	}
	return nil
}
