package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tutti-go/tutti/internal/engine"
)

// RunOn runs a case's body on a group of which this process has only one rank, and
// closes the engine. expected is the failure of the group if the case expects one and the
// rank got it; otherwise nil. The caller must check that all ranks have the same failure.
func (c *Case) RunOn(ctx context.Context, e engine.Engine) (expected, err error) {
	rank := NewRank(e)
	err = c.Body(ctx, rank)
	failure := e.Failure()
	if c.Fault == nil {
		if err != nil {
			rank.FailGroups(err)
		}
		return nil, errors.Join(err, e.Close())
	}
	if closing := e.Close(); closing != nil {
		return nil, errors.Join(err, closing)
	}
	if slices.Contains(c.Fault.Lost, e.Rank()) {
		return nil, err
	}
	if err == nil {
		return nil, errors.New("nothing went wrong")
	}
	if wrong := c.Fault.Check(err); wrong != nil {
		return nil, wrong
	}
	if failure == nil || failure.Error() != err.Error() {
		return nil, fmt.Errorf("the calls returned %w, and the failure is %v", err, failure)
	}
	return err, nil
}
