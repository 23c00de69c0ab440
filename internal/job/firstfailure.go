package job

import (
	"slices"

	"github.com/tutti-go/tutti/internal/engine"
)

// firstFailure is the first failure that this process has learned of, and its group. After an error
// a rank usually closes all its groups. Ranks that still use another of these groups then learn the
// reason.
type firstFailure struct {
	members []int // ranks of the job
	f       *engine.Failure
}

// recordFailure stores a failure if it is the first.
func (j *Job) recordFailure(members []int, f *engine.Failure) {
	j.firstFailure.CompareAndSwap(nil, &firstFailure{members, f})
}

// exitReason returns a function that says why this rank leaves a group that has not failed.
func (j *Job) exitReason(members []int) func() *engine.Failure {
	rank := slices.Index(members, j.cfg.Rank)
	return func() *engine.Failure {
		if b := j.firstFailure.Load(); b != nil {
			return engine.Excuse(b.f, b.members, members, rank)
		}
		return nil
	}
}
