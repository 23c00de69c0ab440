package network

import (
	"encoding/binary"

	"github.com/tutti-go/tutti/internal/engine"
)

// Unconfirmed reports whether calls of this rank may have returned before all other ranks have begun
// them. The goroutine that calls Run may call it.
func (e *Engine) Unconfirmed() bool { return e.unconfirmed && e.cause.Load() == nil }

// noteConfirmed updates unconfirmed after a call.
func (e *Engine) noteConfirmed(c *engine.Call) {
	switch {
	case c.Verb.Synchronizes():
		e.unconfirmed = false
	case c.AwaitsNoRank(e.rank):
		e.unconfirmed = true
	}
}

// Begun returns a channel that is closed when this rank has begun the call of a position. Any
// goroutine may call it.
func (e *Engine) Begun(p Position) <-chan struct{} {
	l := &e.calls
	l.mu.Lock()
	defer l.mu.Unlock()
	w := stepWait{p.step(), make(chan struct{})}
	if l.step >= w.step {
		close(w.begun)
	} else {
		l.waits = append(l.waits, w)
	}
	return w.begun
}

// Reaches reports whether a rank at position p has begun the call of position o.
func (p Position) Reaches(o Position) bool { return p.step() >= o.step() }

func (p Position) step() uint64 { return binary.LittleEndian.Uint64(p[stepAt:]) }

// A stepWait waits until this rank begins a step.
type stepWait struct {
	step  uint64
	begun chan struct{} // closed then
}

// wake closes the channels of the waits that are over. The caller holds l.mu.
func (l *callLog) wake() {
	rest := l.waits[:0]
	for _, w := range l.waits {
		if l.step >= w.step {
			close(w.begun)
		} else {
			rest = append(rest, w)
		}
	}
	l.waits = rest
}

// FailClosed fails the group because a rank has closed it without this rank's last call. The
// goroutine that calls Run may call it.
func (e *Engine) FailClosed(rank int) {
	e.Fail(&engine.Failure{
		Kind: engine.ErrRankLost, Op: e.op, Seq: e.seq, Rank: e.rank, Lost: []int{rank}, Left: true,
		Facts: engine.Facts{Event: engine.RanksLost, Loss: engine.Closed},
	})
}
