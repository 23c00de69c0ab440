package membership

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tutti-go/tutti/internal/agree"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/jobstore"
)

// Agree settles a question among the ranks that are not lost: the answer is yes if all of
// them say yes. The error is an *Error.
func (m *Membership) Agree(ctx context.Context, yes bool) (bool, error) {
	mine := vote{yes: yes}
	if !m.ballot.next(&mine) {
		return false, &Error{Kind: engine.ErrInvalid, Reason: fmt.Sprintf(
			"the last call got no answer, and its question is open: this rank has said %v there, and cannot say %v; call it again with %v",
			!yes, yes, !yes)}
	}
	s, closeStore, err := m.factory.open(ctx)
	if err != nil {
		m.ballot.reopen(mine)
		return false, Undecided(ctx, err)
	}
	defer func() { _ = closeStore() }()
	q := agree.Question{
		Key: jobstore.Question(m.name(), mine.number), Self: m.engine.Rank(), Size: m.engine.Size(),
		Look: func() ([]int, bool) { return m.lost(), m.engine.Failure() == nil }, Timeout: m.cfg.ShrinkTimeout,
	}
	if yes {
		q.Value = 1
	}
	mine.cast = true
	d, err := agree.Settle(ctx, agree.On(s), q)
	if err != nil {
		m.ballot.reopen(mine)
		return false, Undecided(ctx, err)
	}
	if d.Rank(m.engine.Rank()) < 0 {
		return false, excluded(d)
	}
	return d.Value == 1, nil
}

// A vote is this rank's part in one question of Agree.
type vote struct {
	number uint64 // of the question, counted from 1
	yes    bool
	cast   bool // the store may have the vote, so that it must not change any more
}

// A ballot numbers the questions of a generation's Agree, the same on all ranks. The next
// call asks a question that got no answer again.
type ballot struct {
	mu    sync.Mutex
	asked uint64 // number of the last question; guarded by mu
	open  []vote // questions without an answer, by number; guarded by mu
}

// next assigns a question to a vote: the first open one, or else a new one. It returns
// false, and assigns none, if this rank has voted differently on that question.
func (b *ballot) next(v *vote) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.open) == 0 {
		b.asked++
		v.number = b.asked
		return true
	}
	old := b.open[0]
	if old.cast && old.yes != v.yes {
		return false
	}
	b.open = b.open[1:]
	v.number, v.cast = old.number, old.cast
	return true
}

// reopen returns a question that got no answer.
func (b *ballot) reopen(v vote) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, _ := slices.BinarySearchFunc(b.open, v.number, func(o vote, n uint64) int { return cmp.Compare(o.number, n) })
	b.open = slices.Insert(b.open, i, v)
}
