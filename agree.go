package tutti

import "context"

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
	ctx, cancel := c.member.Bound(ctx)
	defer cancel()
	answer, err := c.member.Agree(ctx, yes)
	if err != nil {
		return false, c.refuse(op, err)
	}
	return answer, nil
}
