package network

import (
	"encoding/binary"
	"sync"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/transport"
)

// rememberedCalls is the number of calls that a rank remembers. A rank that waits
// for no other can be that many calls ahead and still learn which call differs.
const rememberedCalls = 64

// callLog records this rank's calls and the newest known call of every other rank.
// It is safe for concurrent use.
type callLog struct {
	mu        sync.Mutex // guards all fields
	step      uint64
	calls     [rememberedCalls]record // this rank's last calls, by step modulo rememberedCalls
	algorithm Algorithm
	heard     []peerCall // by rank
	waits     []stepWait // for later steps of this rank
}

// A record is one call of this rank.
type record struct {
	namedFingerprint
	op  string
	seq uint64
}

// peerCall is the newest known call of another rank.
type peerCall struct {
	step uint64
	call namedFingerprint
}

// Position is a call that a rank runs, or its last one. The zero Position is that
// of a rank that has made no call.
type Position transport.Head

// Position returns this rank's current call, which the owner passes to
// CheckPosition of other ranks. Any goroutine may call it.
func (e *Engine) Position() Position {
	l := &e.calls
	l.mu.Lock()
	defer l.mu.Unlock()
	return Position(l.head())
}

// CheckPosition compares another rank's position with this rank's calls, and fails
// the group if they differ. Frames carry the same information; CheckPosition is for
// ranks that exchange no frames. Any goroutine may call it.
func (e *Engine) CheckPosition(rank int, p Position) {
	raw := transport.Head(p)
	h := readHead(&raw)
	if h.step == 0 {
		return
	}
	l := &e.calls
	l.mu.Lock()
	l.record(rank, &h)
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

// beginStep begins a step and returns the head of its frames.
func (l *callLog) beginStep(call record, alg Algorithm) transport.Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.step++
	l.calls[l.step%rememberedCalls] = call
	l.algorithm = alg
	if len(l.waits) > 0 {
		l.wake()
	}
	return l.head()
}

// head returns the head for the current step. The caller holds l.mu.
func (l *callLog) head() (h transport.Head) {
	if l.step == 0 {
		return h
	}
	binary.LittleEndian.PutUint64(h[stepAt:], l.step)
	h[algorithmAt] = byte(l.algorithm)
	l.calls[l.step%rememberedCalls].put(h[thisAt:])
	l.calls[(l.step-1)%rememberedCalls].put(h[prevAt:])
	return h
}

// record updates the newest known call of a rank. The caller holds l.mu.
func (l *callLog) record(rank int, h *head) {
	if s := &l.heard[rank]; h.step > s.step {
		*s = peerCall{h.step, h.this}
	}
}

// compare finds a call that both this rank and the sender of h have made and in
// which they differ. The caller holds l.mu.
func (l *callLog) compare(h *head) (mine record, theirs namedFingerprint, differ bool) {
	switch {
	case h.step == l.step+1:
		mine, theirs = l.calls[l.step%rememberedCalls], h.prev
	case h.step > l.step || h.step+rememberedCalls <= l.step:
		return mine, theirs, false
	default:
		mine, theirs = l.calls[h.step%rememberedCalls], h.this
		if mine.sig == theirs.sig && h.step+rememberedCalls > l.step+1 {
			mine, theirs = l.calls[(h.step-1)%rememberedCalls], h.prev
		}
	}
	return mine, theirs, mine.sig != theirs.sig
}

// disagreement compares a frame's head with this rank's calls and returns the failure if they differ. It
// returns nil if the calls are the same: agrees, which is faster, may report a difference where there is none
// that matters. The goroutine in Run calls it; the lock of the call log guards what it reads.
func (e *Engine) disagreement(rank int, frame *transport.Head) *engine.Failure {
	h := readHead(frame)
	l := &e.calls
	l.mu.Lock()
	l.record(rank, &h)
	mine, theirs, differ := l.compare(&h)
	step, now, alg := l.step, l.calls[l.step%rememberedCalls], l.algorithm
	l.mu.Unlock()
	switch {
	case differ:
		return e.disagree(engine.CallsDiffer, engine.Side{Call: mine.call()}, engine.Side{Rank: rank, Call: theirs.call()})
	case h.step != step:
		return e.disagree(engine.StepsDiffer,
			engine.Side{Call: now.call(), Step: step}, engine.Side{Rank: rank, Call: h.this.call(), Step: h.step})
	case h.algorithm != alg:
		return e.disagree(engine.AlgorithmsDiffer,
			engine.Side{Call: now.call(), Algorithm: alg.String()}, engine.Side{Rank: rank, Algorithm: h.algorithm.String()})
	}
	return nil
}
