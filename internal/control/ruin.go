package control

import (
	"context"
	"time"
)

// lateTime is how long rank 0, when the job cannot be formed, waits for ranks that
// have not come yet, to tell them why.
const lateTime = 2 * time.Second

// A ruin is why a job cannot be formed: a rank of it runs another version. Ranks
// that have joined, and those that come soon after, are told the same sentence.
// hub.mu guards it.
type ruin struct {
	reason  string        // "": none
	begun   chan struct{} // closed when there is a reason
	told    map[int]bool  // the ranks that have been refused because of it
	others  int           // ranks other than 0
	allTold chan struct{} // closed when all of them have been
}

func newRuin(size int) ruin {
	return ruin{begun: make(chan struct{}), told: make(map[int]bool), others: size - 1, allTold: make(chan struct{})}
}

// tell notes that a rank has been told.
func (r *ruin) tell(rank int) {
	if !r.told[rank] {
		r.told[rank] = true
		if len(r.told) == r.others {
			close(r.allTold)
		}
	}
}

// spoil ends the forming of the job, because of a rank that has been refused, and
// returns true. It does nothing if the job does without that rank: all ranks have
// joined, or another process has its place, whose connection may be about to end.
func (h *hub) spoil(rank int, reason string) bool {
	h.mu.Lock()
	for end := time.Now().Add(replaceTime); ; {
		if h.over || h.joined == h.m.cfg.Size || h.conns[rank] != nil && !time.Now().Before(end) {
			h.mu.Unlock()
			return false
		}
		if h.conns[rank] == nil {
			break
		}
		h.mu.Unlock()
		time.Sleep(replaceTime / 50)
		h.mu.Lock()
	}
	first := h.ruin.reason == ""
	if first {
		h.ruin.reason = reason
		close(h.ruin.begun)
	}
	h.ruin.tell(rank)
	conns := make(map[int]*conn)
	for r, c := range h.conns {
		if c != nil && first {
			conns[r] = c
		}
	}
	h.mu.Unlock()
	for r, c := range conns {
		_ = c.send(&frame{Kind: refused, Reason: reason, Mismatch: true}) // one that is gone needs no reason
		c.Close()
		h.mu.Lock()
		h.ruin.tell(r)
		h.mu.Unlock()
	}
	return true
}

// endRuined returns rank 0's error when the job cannot be formed.
func (h *hub) endRuined(ctx context.Context) error {
	late := time.NewTimer(lateTime)
	defer late.Stop()
	select {
	case <-h.ruin.allTold:
	case <-late.C:
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	h.turnAway(nil)
	return mismatchError(h.ruin.reason)
}
