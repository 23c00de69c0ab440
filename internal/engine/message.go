package engine

import (
	"fmt"
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

// Awaited says, for an error, what this message of a rank's waits for.
func (m *Message) Awaited(rank int) string {
	does := "send to"
	if m.Send {
		does = "receive from"
	}
	return fmt.Sprintf("rank %d did not %s rank %d with tag %d", m.Peer, does, rank, m.Tag)
}

// Mismatch is the failure of a rank that was sent something else than it receives: n
// elements of type t.
func (m *Message) Mismatch(rank int, n uint64, t kernel.DType) *Failure {
	return &Failure{
		Kind: ErrMismatch, Op: "Recv", Seq: m.Seq, Rank: rank,
		Reason: fmt.Sprintf("rank %d receives %d x %s with tag %d, rank %d sends %d x %s; both sides must agree",
			rank, m.Mem.N, m.Mem.Type, m.Tag, m.Peer, n, t),
	}
}
