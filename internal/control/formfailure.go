package control

import (
	"context"
	"time"
)

// abortTime is how long rank 0, when the job cannot be formed, waits for further ranks in order to
// send them the reason.
const abortTime = 2 * time.Second

// A formFailure says why a job cannot be formed: a rank has another version. Ranks that have
// joined, and ranks that connect within abortTime, get the same reason. joinServer.mu guards it.
type formFailure struct {
	reason      string        // empty: the job can be formed
	failed      chan struct{} // closed when reason is set
	notified    map[int]bool  // ranks that were refused with reason
	others      int           // number of ranks other than 0
	allNotified chan struct{} // closed when all other ranks were refused with reason
}

func newFormFailure(size int) formFailure {
	return formFailure{failed: make(chan struct{}), notified: make(map[int]bool), others: size - 1, allNotified: make(chan struct{})}
}

// markNotified records that a rank was refused with the reason.
func (r *formFailure) markNotified(rank int) {
	if !r.notified[rank] {
		r.notified[rank] = true
		if len(r.notified) == r.others {
			close(r.allNotified)
		}
	}
}

// failForming ends the forming of the job because a rank was refused, and reports true. It does
// nothing and reports false if the job does not need that process: all ranks have joined, or
// another process of the rank has joined. It waits up to replaceTime for the connection of the
// other process to end.
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
		_ = c.send(&frame{Kind: refused, Reason: reason, Mismatch: true}) // a rank that has exited needs no reason
		c.Close()
		h.mu.Lock()
		h.formFailure.markNotified(r)
		h.mu.Unlock()
	}
	return true
}

// abortForming returns rank 0's error if the job cannot be formed. It first waits up to abortTime
// for ranks that were not notified.
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
