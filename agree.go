package tutti

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tutti-go/tutti/internal/agree"
)

// Agree settles a question among the ranks that are not lost: the answer is yes
// if all of them say yes. All who get an answer get the same one, whoever dies
// meanwhile; so ranks can find out, for example, whether a step counts. Ranks
// call it in the same order; it stands outside the order of operations, and works
// on a poisoned Comm, too.
//
// A call that fails for want of the store, or because its context ended, leaves
// its question open: this rank may have been counted. The next call asks the same
// question again, and must say the same; ErrInvalid if it does not.
//
// On a poisoned Comm a rank that does not come within Config.Patience is not
// waited for. It gets ErrExcluded when it comes: its answer did not count. Like
// Shrink, Agree needs a store.
func (c *Comm) Agree(ctx context.Context, yes bool) (bool, error) {
	const op = "Agree"
	if err := c.mayDecide(ctx, op); err != nil {
		return false, err
	}
	ctx, cancel := c.home.bound(ctx)
	defer cancel()
	mine := vote{yes: yes}
	if !c.ballot.next(&mine) {
		return false, c.refuse(op, &cause{kind: ErrInvalid, reason: fmt.Sprintf(
			"the last call got no answer, and its question is open: this rank has said %v there, and cannot say %v; call it again with %v",
			!yes, yes, !yes)})
	}
	s, closeStore, err := c.home.site.open(ctx)
	if err != nil {
		c.ballot.reopen(mine)
		return false, c.undecided(ctx, op, err)
	}
	defer func() { _ = closeStore() }()
	q := agree.Question{
		Key: fmt.Sprintf("%s/agree/%d", c.home.name(), mine.number), Self: c.rank, Size: c.size,
		Look: func() ([]int, bool) { return c.lost(), c.e.Failure() == nil }, Patience: c.home.cfg.Patience,
	}
	if yes {
		q.Value = 1
	}
	mine.cast = true
	d, err := agree.Settle(ctx, agree.On(s), q)
	if err != nil {
		c.ballot.reopen(mine)
		return false, c.undecided(ctx, op, err)
	}
	if d.Rank(c.rank) < 0 {
		return false, c.refuse(op, excluded(d))
	}
	return d.Value == 1, nil
}

// A vote is this rank's part in one question of Agree.
type vote struct {
	number uint64 // of the question, counted from 1
	yes    bool
	cast   bool // the store may have it: it cannot change any more
}

// A ballot numbers the questions of a Comm's Agree, the same on all ranks: a
// question that got no answer is asked again by the next call.
type ballot struct {
	mu    sync.Mutex
	asked uint64 // number of the last question
	open  []vote // questions that were given up, in order
}

// next gives a vote its question: the first open one, or else a new one. It
// reports false, and takes none, if this rank has said something else there.
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

// reopen gives up a question that got no answer.
func (b *ballot) reopen(v vote) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, _ := slices.BinarySearchFunc(b.open, v.number, func(o vote, n uint64) int { return cmp.Compare(o.number, n) })
	b.open = slices.Insert(b.open, i, v)
}
