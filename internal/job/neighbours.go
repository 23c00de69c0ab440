package job

import (
	"context"
	"slices"
	"sync"
	"time"
)

// neighbours are the ranks of this host whose processes have ended. Rank 0 tells
// of losses, in one order for all; when it has gone itself, groups without it go
// on, and their ranks hear of each other by the links between them.
type neighbours struct {
	j     *Job
	mu    sync.Mutex
	ended []int
	alone bool // rank 0 is gone
}

// end is the end of a rank's link.
func (n *neighbours) end(rank int) {
	n.mu.Lock()
	n.ended = append(n.ended, rank)
	alone := n.alone
	n.mu.Unlock()
	if alone {
		n.tell(rank)
	}
}

// await waits until rank 0 is gone, or this rank has left the job.
func (n *neighbours) await() {
	<-n.j.member.Ended()
	n.mu.Lock()
	n.alone = true
	ended := n.ended
	n.mu.Unlock()
	for _, rank := range ended {
		n.tell(rank)
	}
}

// listen has f called if rank 0 is lost, now or until stop is called. That it has
// left in good order is another matter: then it has told all that it knew.
func (n *neighbours) listen(f func()) (stop func()) {
	over := make(chan struct{})
	go func() {
		select {
		case <-n.j.member.Ended():
			if slices.Contains(n.j.Lost(), 0) {
				f()
			}
		case <-over:
		}
	}()
	return func() { close(over) }
}

func (n *neighbours) tell(rank int) { n.j.member.Lose(rank, "its process has ended") }

// lossTime is how long somebody who finds a process gone waits to hear of it by
// the control channel, which says it to all.
const lossTime = time.Second

// told waits for a group's end, and says why it came.
func told(ctx context.Context, otherwise error) error {
	t := time.NewTimer(lossTime)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return otherwise
	}
}
