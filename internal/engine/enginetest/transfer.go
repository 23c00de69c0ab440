package enginetest

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// A Transfer describes a message in terms that are valid for every rank.
type Transfer struct {
	From, To int // modulo the number of ranks
	Tag      int
	Type     kernel.DType
	N        int
	Seed     uint64
}

// A transferSide is one rank's side of a transfer.
type transferSide struct {
	t    Transfer
	m    engine.Message
	data []byte
	want []byte
}

// exchange runs transfers among the ranks. Each rank posts its sides in the order
// of the list, so that transfers between two ranks with one tag are matched in that
// order. It then finishes its receives before its sends; backwards reverses the
// order of the receives.
func (r *Rank) exchange(ctx context.Context, backwards bool, list ...Transfer) error {
	r.arena.reset()
	sides := r.post(list)
	var first error
	for _, send := range []bool{false, true} {
		for i := range sides {
			s := sides[i]
			if backwards {
				s = sides[len(sides)-1-i]
			}
			if s.m.Send != send {
				continue
			}
			// Also after an error: a posted message owns its memory until Finish.
			if err := r.finish(ctx, s); first == nil {
				first = err
			}
		}
	}
	return first
}

// post posts this rank's sides of transfers, without waiting. The arena keeps their memory until finish.
func (r *Rank) post(list []Transfer) []*transferSide {
	var sides []*transferSide
	for _, t := range list {
		from, to := t.From%r.Size(), t.To%r.Size()
		for _, send := range []bool{true, false} {
			if send && from != r.Rank() || !send && to != r.Rank() {
				continue
			}
			s := &transferSide{t: t, data: r.arena.take(t.N*t.Type.Size(), t.Type.Size())}
			key := cacheKey{t: t.Type, rank: from, n: t.N, seed: t.Seed}
			s.want = r.cache.get(key, func() []byte { return newInput(t.Type, wild, t.Seed, from, r.Size(), t.N) })
			s.m = engine.Message{Send: send, Peer: to, Tag: t.Tag, Mem: memOf(s.data, t.Type)}
			if send {
				copy(s.data, s.want)
			} else {
				s.m.Peer = from
			}
			r.Post(&s.m)
			sides = append(sides, s)
		}
	}
	return sides
}

// finish waits for a message, checks it, and overwrites its memory. An engine that still used the memory
// would be found.
func (r *Rank) finish(ctx context.Context, s *transferSide) error {
	if err := s.m.Check(r.Rank(), r.Size()); err != nil {
		return err
	}
	err := r.Finish(ctx, &s.m)
	same := bytes.Equal(s.data, s.want)
	fillPattern(s.data, spoil)
	if err != nil {
		return fmt.Errorf("%+v on rank %d of %d: %w", s.t, r.Rank(), r.Size(), err)
	}
	if !same {
		return fmt.Errorf("%+v on rank %d of %d: the data is not what was sent", s.t, r.Rank(), r.Size())
	}
	return nil
}
