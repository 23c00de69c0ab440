package engine

import (
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/kernel"
)

// A Message is one side of a point-to-point transfer. The caller sets the first group
// of fields. The engine owns the Message from Post until Finish returns. Then the
// caller may reuse it.
type Message struct {
	Send bool
	Peer int // rank of the other side
	Tag  int
	Mem  Mem
	Seq  uint64 // for error texts

	// The fields below are for the engine alone.

	Pair  *Message      // the other side
	State atomic.Uint64 // progress of the transfer
	Extra any           // further state of the engine
}

// Op returns the name of the method that makes such a message.
func (m *Message) Op() string {
	if m.Send {
		return "Send"
	}
	return "Recv"
}

// Awaited returns the facts of a message that waits for its peer.
func (m *Message) Awaited() Facts {
	w := Wait{Phase: Receiving, Ranks: []int{m.Peer}}
	if m.Send {
		w.Phase = Sending
	}
	return Facts{Tag: m.Tag, Wait: w}
}

// Mismatch returns the failure of rank, whose receive m does not match the message
// that its peer sends: n elements of type t.
func (m *Message) Mismatch(rank int, n uint64, t kernel.DType) *Failure {
	return &Failure{Kind: ErrMismatch, Op: "Recv", Seq: m.Seq, Rank: rank, Facts: Facts{
		Event: MessagesDiffer, Tag: m.Tag,
		Sides: []Side{
			{Rank: rank, Call: CallInfo{Fingerprint: Fingerprint{Type: m.Mem.Type, Count: int64(m.Mem.N)}}},
			{Rank: m.Peer, Call: CallInfo{Fingerprint: Fingerprint{Type: t, Count: int64(n)}}},
		},
	}}
}
