package engine

import (
	"time"

	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/match"
	"github.com/tutti-go/tutti/internal/wait"
)

// AnyRank is the Peer of a receive from any rank.
const AnyRank = match.AnyRank

// A Message is one side of a point-to-point transfer. The caller sets the first group
// of fields. The engine owns the Message from Post until Finish returns. Then the
// caller may reuse it with the same engine, and keeps Extra.
type Message struct {
	Send bool
	Peer int // rank of the other side; of a receive: may be AnyRank
	Tag  int
	Mem  Mem
	Seq  uint64 // for error texts

	// Flexible makes a receive take fewer elements than Mem has. If it ends without a
	// message, because its context ended or Mem is too small, the group stays healthy,
	// the message waits for another receive, and Finish returns an *Unreceived.
	Flexible bool
	// Room returns the memory for a flexible receive of n elements, in place of Mem,
	// of which only the type counts. Nil: Mem is the memory. The engine may hold locks.
	Room func(n int) Mem
	// Limit is the largest n that Room is called with. A longer message is one that is
	// too long for its buffer.
	Limit int
	// OnWait is called once a minute while the message waits for its peer, with the
	// time waited so far. Nil: it is not called.
	OnWait func(m *Message, waited time.Duration)

	// FirstWait records when the message begins to wait for its peer. Nil: that is not
	// recorded.
	FirstWait *wait.FirstWait

	// The results of a receive, valid when Finish has returned nil.

	From int // rank of the sender
	Len  int // number of elements received

	Extra any // state of the engine
}

// Op returns the name of the method that makes such a message.
func (m *Message) Op() string {
	if m.Send {
		return "Send"
	}
	return "Recv"
}

// Missed returns the ranks that a message misses when a peer is lost: that one, or with a receive
// from any rank of a group of the given size all but rank.
func (m *Message) Missed(peer, rank, size int) (list []int) {
	if m.Peer != AnyRank {
		return []int{peer}
	}
	for r := range size {
		if r != rank {
			list = append(list, r)
		}
	}
	return list
}

// Awaited returns the facts of a message that waits for its peer.
func (m *Message) Awaited() Facts {
	w := Wait{Phase: Receiving, Ranks: []int{m.Peer}}
	switch {
	case m.Send:
		w.Phase = Sending
	case m.Peer == AnyRank:
		w.Ranks = nil
	}
	return Facts{Tag: m.Tag, Wait: w}
}

// Mismatch returns the failure of rank, whose receive m does not match the message
// that rank from sends: n elements of type t.
func (m *Message) Mismatch(rank, from int, n uint64, t kernel.DType) *Failure {
	return &Failure{Kind: ErrMismatch, Op: "Recv", Seq: m.Seq, Rank: rank, Facts: Facts{
		Event: MessagesDiffer, Tag: m.Tag,
		Sides: []Side{
			{Rank: rank, Call: CallInfo{Fingerprint: Fingerprint{Type: m.Mem.Type, Count: int64(m.Mem.N)}}},
			{Rank: from, Call: CallInfo{Fingerprint: Fingerprint{Type: t, Count: int64(n)}}},
		},
	}}
}

// An Unreceived is the error of a flexible receive that took no message. Its group is
// healthy.
type Unreceived struct {
	Err error // matches ErrInvalid, or the error of the context that ended
}

func (u *Unreceived) Error() string { return u.Err.Error() }

// Unwrap returns Err.
func (u *Unreceived) Unwrap() error { return u.Err }
