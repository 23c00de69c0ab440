package tutti

import (
	"context"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
)

// AnyRank as the sender of Recv and RecvSlice stands for all ranks.
const AnyRank = engine.AnyRank

// A Message describes a message that was received.
type Message struct {
	From int // the sender
	Tag  int
	Len  int // number of elements
	Type DType
}

// Send sends a buffer to another rank, which calls Recv. It returns when the receiver has taken the
// data. Messages between two ranks with one tag arrive in order, tags are independent of each
// other.
//
// Send and Recv wait for a rank that runs as long as their context allows, not for Config.Timeout.
// The Logger names the waiting pair once a minute. Ranks that have waited for each other in a cycle
// for Config.Timeout fail with ErrTimeout, which lists the cycle; two ranks that both call Send
// first are one.
func (c *Comm) Send(ctx context.Context, to int, buf Buffer, tag int) error {
	_, err := c.exchange(ctx, "Send", &side{send: true, peer: to, tag: tag, buf: buf}, nil)
	return err
}

// Recv receives a message that another rank sends with this tag. The message may be shorter than
// the buffer, and must have its element type. AnyRank takes the first message from any rank with
// the tag, in the order of arrival; it fails when every other rank has closed the Comm.
//
// Two errors leave the Comm healthy and the message to the next Recv: a buffer that is too short
// is ErrInvalid, and the end of ctx, before the data of a message is on the way, is the error of
// ctx. A receive into device memory needs a named rank and the exact length; its errors poison
// the Comm.
//
// In the cycles that Send describes, a Recv from AnyRank takes no part. A goroutine that
// listens for long, while other goroutines use the Comm, uses AnyRank and a tag of its own.
func (c *Comm) Recv(ctx context.Context, from int, buf Buffer, tag int) (Message, error) {
	return c.exchange(ctx, "Recv", &side{flexible: true, peer: from, tag: tag, buf: buf}, nil)
}

// RecvSlice is Recv into a new slice, of the length of the message.
func RecvSlice[T Elem](ctx context.Context, c *Comm, from, tag int) ([]T, Message, error) {
	var got []T
	empty := Of(got)
	limit := maxAlloc / empty.m.Type.Size()
	if ctx != nil {
		if n, ok := engine.RecvLimit(ctx); ok {
			limit = min(limit, n)
		}
	}
	m, err := c.exchange(ctx, "Recv", &side{
		flexible: true, peer: from, tag: tag, buf: empty, limit: limit,
		room: func(n int) engine.Mem {
			got = make([]T, n)
			return engine.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(got)), N: n, Type: empty.m.Type}
		},
	}, nil)
	if err != nil {
		return nil, m, err
	}
	return got, m, nil
}

// SendRecv sends and receives at the same time, so that ranks can exchange data or forward it in a
// ring. The two buffers must not overlap. The received message has the length of dst.
func (c *Comm) SendRecv(ctx context.Context, to int, src Buffer, from int, dst Buffer, tag int) error {
	_, err := c.exchange(ctx, "SendRecv",
		&side{peer: from, tag: tag, buf: dst}, &side{send: true, peer: to, tag: tag, buf: src})
	return err
}

// logWait logs that a message waits for its peer.
func (c *Comm) logWait(m *engine.Message, waited time.Duration) {
	args := []any{"rank", c.rank, "tag", m.Tag, "waited", waited.Round(time.Second)}
	switch {
	case m.Send:
		c.member.Logger().Warn("tutti: Send waits for its receiver", append(args, "for", m.Peer)...)
	case m.Peer == AnyRank:
		c.member.Logger().Warn("tutti: Recv waits for a message of any rank", args...)
	default:
		c.member.Logger().Warn("tutti: Recv waits for its sender", append(args, "for", m.Peer)...)
	}
}
