package engine

import (
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/kernel"
)

// A Message is one side of a point-to-point transfer. The caller fills in the
// first group of fields and leaves the rest to the engine; after Finish it may
// be used again.
type Message struct {
	Send bool
	Peer int
	Tag  int
	Mem  Mem
	Seq  uint64 // for error texts

	Pair  *Message      // the engine's: the other side
	State atomic.Uint64 // the engine's: how far it is
	Extra any           // the engine's: what else it knows of it
}

// Op is the name of the method that makes such a message.
func (m *Message) Op() string {
	if m.Send {
		return "Send"
	}
	return "Recv"
}

// Awaited is what this message waits for.
func (m *Message) Awaited() Facts {
	w := Wait{Phase: Receiving, Ranks: []int{m.Peer}}
	if m.Send {
		w.Phase = Sending
	}
	return Facts{Tag: m.Tag, Wait: w}
}

// Mismatch is the failure of a rank that was sent something else than it receives: n
// elements of type t.
func (m *Message) Mismatch(rank int, n uint64, t kernel.DType) *Failure {
	return &Failure{Kind: ErrMismatch, Op: "Recv", Seq: m.Seq, Rank: rank, Facts: Facts{
		Event: MessagesDiffer, Tag: m.Tag,
		Sides: []Side{
			{Rank: rank, Call: CallInfo{Sig: Sig{Type: m.Mem.Type, Count: int64(m.Mem.N)}}},
			{Rank: m.Peer, Call: CallInfo{Sig: Sig{Type: t, Count: int64(n)}}},
		},
	}}
}
