package shm

import (
	"time"

	"github.com/tutti-go/tutti/internal/engine"
)

// exitReportTime is how long a rank that has seen the end of another rank's process
// waits for the owner of the group to report a loss. The process may have ended
// because another rank was lost first, and the first loss is the cause to report.
const exitReportTime = 300 * time.Millisecond

// checkProcesses ends a wait if the process of a rank has ended and the owner has
// reported no failure for exitReportTime. The waiting goroutine in Run calls it.
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
