package job

import (
	"slices"

	"github.com/tutti-go/tutti/internal/engine"
)

// A blame is the first failure that this process knows of, and the group that it
// was in. A rank that has an error usually closes all its groups, and those who
// still need it in another one should hear of the reason.
type firstFailure struct {
	members []int // by their numbers in the job
	f       *engine.Failure
}

// blame notes a failure, if it is the first.
func (j *Job) recordFailure(members []int, f *engine.Failure) {
	j.firstFailure.CompareAndSwap(nil, &firstFailure{members, f})
}

// excuse says why this rank leaves a group that is well.
func (j *Job) exitReason(members []int) func() *engine.Failure {
	rank := slices.Index(members, j.cfg.Rank)
	return func() *engine.Failure {
		if b := j.firstFailure.Load(); b != nil {
			return engine.Excuse(b.f, b.members, members, rank)
		}
		return nil
	}
}
