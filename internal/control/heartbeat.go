package control

import (
	"time"

	"github.com/tutti-go/tutti/internal/keepalive"
)

// maxUnanswered is how many heartbeats a conn sends without receiving a frame. The socket buffer of
// a stopped rank must not fill up.
const maxUnanswered = 600

// sendHeartbeats sends a frame at a fixed interval until over is closed. The kernel notices that a
// host does not answer only by unacknowledged data. If one direction of the network is cut, the
// side that receives keep-alive probes sends none itself and would never notice.
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
			return // the reader notices the same error
		}
	}
}
