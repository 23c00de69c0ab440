package tutti

import (
	"context"
	"fmt"

	"github.com/tutti-go/tutti/internal/agree"
)

// Agree settles a question among the ranks that are not lost: the answer is yes
// if all of them say yes. All who get an answer get the same one, whoever dies
// meanwhile; so ranks can find out, for example, whether a step counts. Ranks
// call it in the same order; it stands outside the order of operations, and works
// on a poisoned Comm, too.
//
// On a poisoned Comm a rank that does not come within Config.Patience is not
// waited for. It gets ErrExcluded when it comes: its answer did not count. Like
// Shrink, Agree needs a store.
func (c *Comm) Agree(ctx context.Context, yes bool) (bool, error) {
	const op = "Agree"
	if err := c.mayDecide(ctx, op); err != nil {
		return false, err
	}
	number := c.questions.Add(1)
	ctx, cancel := c.home.bound(ctx)
	defer cancel()
	s, closeStore, err := c.home.site.open(ctx)
	if err != nil {
		return false, c.undecided(ctx, op, err)
	}
	defer func() { _ = closeStore() }()
	q := agree.Question{
		Key: fmt.Sprintf("%s/agree/%d", c.home.name(), number), Self: c.rank, Size: c.size,
		Look: func() ([]int, bool) { return c.lost(), c.e.Failure() == nil }, Patience: c.home.cfg.Patience,
	}
	if yes {
		q.Value = 1
	}
	d, err := agree.Settle(ctx, agree.On(s), q)
	if err != nil {
		return false, c.undecided(ctx, op, err)
	}
	if d.Rank(c.rank) < 0 {
		return false, c.refuse(op, excluded(d))
	}
	return d.Value == 1, nil
}
