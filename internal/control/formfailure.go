package control

import (
	"context"
	"time"
)

// lateTime is how long rank 0, when the job cannot be formed, waits for ranks that
// have not come yet, to tell them why.
const abortTime = 2 * time.Second

// A ruin is why a job cannot be formed: a rank of it runs another version. Ranks
// that have joined, and those that come soon after, are told the same sentence.
// hub.mu guards it.
type formFailure struct {
	reason      string        // "": none
	failed      chan struct{} // closed when there is a reason
	notified    map[int]bool  // the ranks that have been refused because of it
	others      int           // ranks other than 0
	allNotified chan struct{} // closed when all of them have been
}

func newFormFailure(size int) formFailure {
	return formFailure{failed: make(chan struct{}), notified: make(map[int]bool), others: size - 1, allNotified: make(chan struct{})}
}

// tell notes that a rank has been told.
func (r *formFailure) markNotified(rank int) {
	if !r.notified[rank] {
		r.notified[rank] = true
		if len(r.notified) == r.others {
			close(r.allNotified)
		}
	}
}

// spoil ends the forming of the job, because of a rank that has been refused, and
// returns true. It does nothing if the job does without that rank: all ranks have
// joined, or another process has its place, whose connection may be about to end.
func (h *joinServer) failForming(rank int, reason string) bool {
	h.mu.Lock()
	for end := time.Now().Add(replaceTime); ; {
		if h.closed || h.joined == h.member.cfg.Size || h.conns[rank] != nil && !time.Now().Before(end) {
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
	first := h.formFailure.reason == ""
	if first {
		h.formFailure.reason = reason
		close(h.formFailure.failed)
	}
	h.formFailure.markNotified(rank)
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
		h.formFailure.markNotified(r)
		h.mu.Unlock()
	}
	return true
}

// endRuined returns rank 0's error when the job cannot be formed.
func (h *joinServer) abortForming(ctx context.Context) error {
	late := time.NewTimer(abortTime)
	defer late.Stop()
	select {
	case <-h.formFailure.allNotified:
	case <-late.C:
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.closeAll(nil)
	return mismatchError(h.formFailure.reason)
}
