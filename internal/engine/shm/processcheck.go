package shm

import (
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// endedTime is how long a rank that has seen another's process end waits for its owner to
// say which rank was lost first: the process may have ended because of that one.
const exitReportTime = 300 * time.Millisecond

// lookout ends a wait if the process of a rank has ended, and nobody has said so for
// endedTime. It is called while this rank waits.
func (e *Engine) checkProcesses(now time.Time) error {
	for r := 0; e.endedRank == 0 && r < len(e.g.boards); r++ {
		if r != e.rank && e.g.shared.Ended(r) && e.g.boards[r].left().Load() == 0 {
			e.endedRank, e.endedSeen = r+1, now
		}
	}
	if e.endedRank == 0 || now.Sub(e.endedSeen) < exitReportTime {
		return nil
	}
	return e.lost(e.endedRank-1, engine.Exited, nil)
}
