package network

import (
	"encoding/binary"
	"sync"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/transport"
)

// past is how many calls a rank remembers. One that waits for nobody can be
// that far ahead of another and still be told what they disagree about.
const past = 64

// A log is what a rank knows of calls: its own, and the last ones of others. It
// is safe for concurrent use.
type log struct {
	mu    sync.Mutex
	step  uint64
	calls [past]record
	way   Algorithm
	heard []seen // by rank
}

// A record is one call of this rank's.
type record struct {
	mark
	op  string
	seq uint64
}

// seen is the newest that was heard of a rank.
type seen struct {
	step uint64
	call mark
}

// A Position is a call that a rank is in, or was in last. The zero Position is
// that of a rank that has called nothing yet.
type Position transport.Head

// Position returns where this rank is, to be passed on to other ranks' Heard.
// It may be called by any goroutine.
func (e *Engine) Position() Position {
	l := &e.log
	l.mu.Lock()
	defer l.mu.Unlock()
	return Position(l.head())
}

// Heard compares another rank's position with this rank's, and ends the group
// if they disagree. Frames do the same; Heard is for ranks that send each other
// none. It may be called by any goroutine.
func (e *Engine) Heard(rank int, p Position) {
	raw := transport.Head(p)
	h := readHead(&raw)
	if h.step == 0 {
		return
	}
	l := &e.log
	l.mu.Lock()
	l.hear(rank, &h)
	mine, theirs, differ := l.compare(&h)
	l.mu.Unlock()
	if differ {
		e.Fail(&engine.Failure{
			Kind: engine.ErrMismatch, Op: mine.op, Seq: mine.seq, Rank: e.rank,
			Facts: engine.Facts{
				Event: engine.CallsDiffer, Sides: []engine.Side{{Rank: e.rank, Call: mine.call()}, {Rank: rank, Call: theirs.call()}},
			},
		})
	}
}

// enter begins a step and returns the head of its frames.
func (l *log) enter(call record, way Algorithm) transport.Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.step++
	l.calls[l.step%past] = call
	l.way = way
	return l.head()
}

// head describes the present step; l.mu is held.
func (l *log) head() (h transport.Head) {
	if l.step == 0 {
		return h
	}
	binary.LittleEndian.PutUint64(h[stepAt:], l.step)
	h[wayAt] = byte(l.way)
	l.calls[l.step%past].put(h[thisAt:])
	l.calls[(l.step-1)%past].put(h[prevAt:])
	return h
}

// hear notes what a rank is in; l.mu is held.
func (l *log) hear(rank int, h *head) {
	if s := &l.heard[rank]; h.step > s.step {
		*s = seen{h.step, h.this}
	}
}

// compare finds a call that both this rank and the sender of h made, and in
// which they differ; l.mu is held.
func (l *log) compare(h *head) (mine record, theirs mark, differ bool) {
	switch {
	case h.step == l.step+1:
		mine, theirs = l.calls[l.step%past], h.prev
	case h.step > l.step || h.step+past <= l.step:
		return mine, theirs, false
	default:
		mine, theirs = l.calls[h.step%past], h.this
		if mine.sig == theirs.sig && h.step+past > l.step+1 {
			mine, theirs = l.calls[(h.step-1)%past], h.prev
		}
	}
	return mine, theirs, mine.sig != theirs.sig
}

// disagreement says what is wrong with a frame that is not of this step. It
// may be nothing after all.
func (e *Engine) disagreement(rank int, frame *transport.Head) *engine.Failure {
	h := readHead(frame)
	l := &e.log
	l.mu.Lock()
	l.hear(rank, &h)
	mine, theirs, differ := l.compare(&h)
	step, now, way := l.step, l.calls[l.step%past], l.way
	l.mu.Unlock()
	switch {
	case differ:
		return e.disagree(engine.CallsDiffer, engine.Side{Call: mine.call()}, engine.Side{Rank: rank, Call: theirs.call()})
	case h.step != step:
		return e.disagree(engine.StepsDiffer,
			engine.Side{Call: now.call(), Step: step}, engine.Side{Rank: rank, Call: h.this.call(), Step: h.step})
	case h.way != way:
		return e.disagree(engine.AlgorithmsDiffer,
			engine.Side{Call: now.call(), Algorithm: way.String()}, engine.Side{Rank: rank, Algorithm: h.way.String()})
	}
	return nil
}
