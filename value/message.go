package value

import (
	"context"
	"fmt"
	"reflect"

	"github.com/tutti-go/tutti"
	"github.com/tutti-go/tutti/internal/engine"
)

// Send sends a value to another rank, which calls Recv with the same type. It returns when the
// receiver has taken the message. Package tutti's rules for Comm.Send hold.
func Send[T any](ctx context.Context, c *tutti.Comm, to int, v T, tag int) error {
	head := appendHead(make([]byte, 0, 512), reflect.TypeFor[T]())
	msg, err := encode(head, &v, len(head)+MaxBytes)
	if err != nil {
		return failOn("value.Send", c.Rank(), err)
	}
	return c.Send(ctx, to, tutti.Of(engine.ValueBytes(msg)), tag)
}

// Recv receives a value that another rank sends with this tag. AnyRank takes the first message
// from any rank with the tag. Package tutti's rules for Comm.Recv hold, also for the end of ctx.
// The Len of the Message is the size of the message in bytes.
//
// A value of another type is ErrMismatch, taken and lost. A message that Send has not sent is
// ErrMismatch and poisons the Comm, as is a value that Comm.Recv or RecvSlice receives. A message
// that cannot come from Send because it is too long is ErrInvalid and waits for another receive.
func Recv[T any](ctx context.Context, c *tutti.Comm, from, tag int) (T, tutti.Message, error) {
	var zero T
	if ctx != nil {
		ctx = engine.WithRecvLimit(ctx, headBytes+maxName+MaxBytes)
	}
	msg, m, err := tutti.RecvSlice[engine.ValueByte](ctx, c, from, tag)
	if err != nil {
		return zero, m, err
	}
	m.Type = tutti.Uint8Type
	v, err := open[T](engine.BytesOfValue(msg), m, c.Rank())
	if err != nil {
		return zero, m, err
	}
	return v, m, nil
}

// open returns the value in a message that rank has received.
func open[T any](msg []byte, m tutti.Message, rank int) (T, error) {
	const op = "value.Recv"
	var zero T
	hash, name, body, ok := parseHead(msg)
	if !ok {
		return zero, fail(op, rank, tutti.ErrMismatch,
			fmt.Sprintf("the message from rank %d with tag %d is no value; send it by value.Send, or receive it by Comm.Recv", m.From, m.Tag))
	}
	if t := reflect.TypeFor[T](); hash != fingerprint(t) {
		mine := cutName(t)
		if mine == name {
			mine = anotherType
		}
		return zero, fail(op, rank, tutti.ErrMismatch,
			fmt.Sprintf("rank %d sends %s with tag %d, and rank %d receives %s; use the same type on both sides", m.From, name, m.Tag, rank, mine))
	}
	v, err := decode[T](body, m.From)
	if err != nil {
		return zero, failOn(op, rank, err)
	}
	return v, nil
}
