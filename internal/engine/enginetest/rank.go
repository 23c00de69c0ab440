package enginetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// A Rank is one rank's engine in a group, as a body uses it. It counts the
// operations, makes their arguments and checks their results. It is for one
// goroutine. A group made by Split has a Rank of its own.
type Rank struct {
	engine.Engine

	seq   uint64
	arena arena
	cache *cache
	calls []engine.Call
	ready []prepared

	all *groups
}

// groups are all the groups of which one rank is a member. FailGroups fails all of
// them.
type groups struct {
	mu   sync.Mutex
	list []engine.Engine // guarded by mu
}

// NewRank returns a rank for a body that is alone in its process.
func NewRank(e engine.Engine) *Rank { return newRank(e, newCache(), new(groups)) }

// A RankFactory makes the ranks of bodies that share a process. They share the
// inputs and results that they compute for checks.
type RankFactory struct{ shared *cache }

// NewRankFactory returns a RankFactory.
func NewRankFactory() *RankFactory { return &RankFactory{newCache()} }

// Rank is NewRank for a body that shares the process. Any goroutine may call it.
func (c *RankFactory) Rank(e engine.Engine) *Rank { return newRank(e, c.shared, new(groups)) }

func newRank(e engine.Engine, c *cache, all *groups) *Rank {
	all.mu.Lock()
	all.list = append(all.list, e)
	all.mu.Unlock()
	return &Rank{Engine: e, cache: c, all: all}
}

// FailGroups fails all groups of which this rank is a member, because its body has
// failed and the other ranks must not wait for it.
func (r *Rank) FailGroups(err error) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	for _, e := range r.all.list {
		e.Fail(&engine.Failure{
			Kind: engine.ErrAborted, Rank: e.Rank(), Facts: engine.Facts{Text: fmt.Sprintf("the test has failed: %v", err)},
		})
	}
}

// Do runs operations as one batch and checks all their effects: results, unchanged sources, guard bytes and
// the calls themselves. It returns the engine's error or the first wrong effect. Only the rank's goroutine
// calls it.
func (r *Rank) Do(ctx context.Context, ops ...Op) error {
	if err := r.Try(ctx, ops...); err != nil {
		return fmt.Errorf("%v on rank %d of %d: %w", ops, r.Rank(), r.Size(), err)
	}
	for i := range r.ready {
		p := &r.ready[i]
		if err := p.verify(r.Rank(), r.Size()); err != nil {
			return err
		}
		if !sameCall(&p.call, &r.calls[i]) {
			return fmt.Errorf("%v: rank %d of %d: Run changed its argument:\n%+v, was\n%+v",
				p.op, r.Rank(), r.Size(), r.calls[i], p.call)
		}
	}
	for i := range r.arena.buffers {
		if !r.arena.buffers[i].intact() {
			return fmt.Errorf("%v: rank %d of %d: memory beside buffer %d was written", ops, r.Rank(), r.Size(), i)
		}
	}
	r.arena.overwrite()
	return nil
}

// Try runs operations as one batch and returns the engine's error. After an error
// it overwrites all memory at once, because the memory belongs to the rank again.
func (r *Rank) Try(ctx context.Context, ops ...Op) error {
	r.arena.reset()
	r.ready, r.calls = r.ready[:0], r.calls[:0]
	for _, o := range ops {
		p := o.prepare(&r.arena, r.cache, r.Rank(), r.Size())
		r.ready = append(r.ready, p)
		r.calls = append(r.calls, p.call)
	}
	err := r.run(ctx)
	if err != nil {
		r.arena.overwrite()
	}
	return err
}

// run runs r.calls after the checks of the public API.
func (r *Rank) run(ctx context.Context) error {
	for i := range r.calls {
		if err := r.calls[i].Check(r.Rank(), r.Size()); err != nil {
			return err
		}
	}
	r.seq++
	return r.Run(ctx, r.seq, r.calls)
}

// Split divides the group: ranks with one colour form a new group, ordered by key
// and then by rank. A rank with a negative colour gets nil.
func (r *Rank) Split(ctx context.Context, colour, key int) (*Rank, error) {
	mine := []int64{int64(colour), int64(key)}
	all := make([]int64, 2*r.Size())
	r.calls = append(r.calls[:0], engine.Call{Verb: engine.Split, Src: int64s(mine), Dst: int64s(all)})
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	var members []int
	for m := range r.Size() {
		if all[2*m] == int64(colour) {
			members = append(members, m)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(all[2*a+1], all[2*b+1]) })
	if colour < 0 {
		return nil, nil
	}
	return r.sub(ctx, members)
}

// Dup makes a second group of the same ranks.
func (r *Rank) Dup(ctx context.Context) (*Rank, error) {
	if err := r.decide(ctx); err != nil {
		return nil, err
	}
	members := make([]int, r.Size())
	for m := range members {
		members[m] = m
	}
	return r.sub(ctx, members)
}

func (r *Rank) sub(ctx context.Context, members []int) (*Rank, error) {
	e, err := r.Sub(ctx, r.seq, members)
	if err != nil {
		return nil, err
	}
	if want := slices.Index(members, r.Rank()); e.Rank() != want || e.Size() != len(members) {
		return nil, fmt.Errorf("Sub(%v): rank %d became rank %d of %d, want %d of %d",
			members, r.Rank(), e.Rank(), e.Size(), want, len(members))
	}
	return newRank(e, r.cache, r.all), nil
}

func int64s(s []int64) engine.Mem {
	return engine.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(s)), N: len(s), Type: kernel.Int64}
}
