package watch

import (
	"context"
	"time"
)

// Rank 0, when it leaves, asks those who are still there every askTime. Who has
// not answered for quietTime is stopped, or its host is gone: what it was told
// waits for it in its connection, and rank 0 need not.
const (
	askTime   = 500 * time.Millisecond
	quietTime = 3 * time.Second
)

// A vigil is rank 0's while it waits for others to leave.
type vigil struct {
	every, quiet time.Duration
	heard        []time.Time // by rank: when something last came from it; guarded by hub.mu
}

// hears notes that something has come from a rank.
func (h *hub) hears(rank int) {
	h.mu.Lock()
	h.vigil.heard[rank] = time.Now()
	h.mu.Unlock()
}

// await returns when all others have left, when none of those who are there
// answers any more, or when ctx ends.
func (h *hub) await(ctx context.Context) {
	begun := time.Now()
	tick := time.NewTicker(h.vigil.every)
	defer tick.Stop()
	for {
		for _, c := range h.answering(begun, time.Now()) {
			// One that does not read must not keep the others from being asked.
			h.readers.Go(func() { _ = c.send(&frame{Kind: ask}) })
		}
		select {
		case <-h.empty:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if len(h.answering(begun, time.Now())) == 0 {
			return
		}
	}
}

// answering are the connections of those who have answered lately. Before they
// were asked they need not have said anything.
func (h *hub) answering(begun, now time.Time) (list []*conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r, c := range h.conns {
		last := h.vigil.heard[r]
		if last.Before(begun) {
			last = begun
		}
		if c != nil && now.Sub(last) < h.vigil.quiet {
			list = append(list, c)
		}
	}
	return list
}
