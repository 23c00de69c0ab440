package control

import (
	"time"

	"github.com/tutti-go/tutti/internal/keepalive"
)

// beatsUnheard is how many beats go to one who says nothing: a rank that is
// stopped must not have its socket filled.
const maxUnanswered = 600

// beat says something now and then, until the connection is over. The kernel
// knows that a host does not answer only by what was sent there: where nothing
// comes through in one direction, one side would go on hearing the other's
// questions, and ask none itself.
func (c *conn) sendHeartbeats(limit time.Duration, over <-chan struct{}) {
	tick := time.NewTicker(max(keepalive.Clamp(limit)/6, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		if c.unanswered.Add(1) > maxUnanswered {
			continue
		}
		if err := c.send(&frame{Kind: heartbeat}); err != nil {
			return // the reader finds out, too
		}
	}
}
