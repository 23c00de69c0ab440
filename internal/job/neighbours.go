package job

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/segment"
)

// neighbours are the ranks of this host whose processes have ended. Rank 0 tells
// of losses, in one order for all; when it has gone itself, groups without it go
// on, and their ranks hear of each other by the links between them. Whoever hears
// may end at once, so the others are told first: they must not take the one for
// the other.
type neighbours struct {
	j     *Job
	mu    sync.Mutex // held while this rank's groups are told, so that they hear in one order
	links map[int]*segment.Link
	ended []int // in the order in which this rank has heard of them
	alone bool  // rank 0 is gone
}

// meet notes who is to be told.
func (n *neighbours) meet(links map[int]*segment.Link) {
	n.mu.Lock()
	n.links = links
	n.mu.Unlock()
}

// end is the end of a rank's process.
func (n *neighbours) end(rank int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Contains(n.ended, rank) {
		return
	}
	n.ended = append(n.ended, rank)
	if n.alone {
		n.tell(rank)
	}
}

// hear takes what a neighbour has told: whose process has ended.
func (n *neighbours) hear(_ int, note []byte) {
	if rank, err := strconv.Atoi(string(note)); err == nil && rank >= 0 && rank < n.j.cfg.Size && rank != n.j.cfg.Rank {
		n.end(rank)
	}
}

// await waits until rank 0 is gone, or this rank has left the job.
func (n *neighbours) await() {
	<-n.j.member.Ended()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.alone = true
	for _, rank := range n.ended {
		n.tell(rank)
	}
}

// tell tells the neighbours, and then this rank's groups. n.mu is held.
func (n *neighbours) tell(rank int) {
	for r, l := range n.links {
		if r != rank {
			_ = l.Note(strconv.AppendInt(nil, int64(rank), 10)) // if it has ended, nobody need be told
		}
	}
	n.j.member.Lose(rank, "its process has ended")
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
