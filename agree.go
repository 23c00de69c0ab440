package tutti

import "context"

// Agree settles a question among the ranks that are not lost: the answer is yes if all
// of them say yes. All ranks that get an answer get the same one, also if ranks exit
// meanwhile. So ranks can decide, for example, whether a training step counts. Ranks
// call Agree in the same order. It is independent of the order of operations, and works
// on a poisoned Comm, too.
//
// A call that fails because the store cannot be reached, or because ctx ended, leaves
// its question open: this rank's answer may count. The next call asks the same question
// again. It must pass the same answer; otherwise it returns ErrInvalid.
//
// On a poisoned Comm, Agree waits at most Config.ShrinkTimeout for the other ranks. The
// answer of a rank that calls it later does not count, and the call returns ErrExcluded.
// Like Shrink, Agree needs a store: that of the launcher, one of store.Listen, or the one in
// memory of Local.
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
