package network

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// A letter is a message under way: what the transport needs for it.
type letter struct {
	e    *Engine
	m    *engine.Message
	mail transport.Message
	w    *wait.Waiter
	sent bool // the transport has it
}

// keepLetters bounds what is kept for reuse.
const keepLetters = 256

// Post announces a message to the transport. After the group's end there is
// nothing to announce: Finish says so.
func (e *Engine) Post(m *engine.Message) {
	e.mu.Lock()
	var l *letter
	if n := len(e.spare); n > 0 {
		l = e.spare[n-1]
		e.spare = e.spare[:n-1]
	} else {
		l = &letter{e: e, w: wait.NewWaiter(e.opt.ParkingLot)}
		l.mail.Accept = l.accept
	}
	l.m = m
	l.mail.Send, l.mail.Peer, l.mail.Tag, l.mail.Body = m.Send, m.Peer, m.Tag, bytesOf(m.Mem)
	putMail(&l.mail.Head, m.Mem)
	e.letters[m] = l
	l.sent = !e.opt.ParkingLot.Stopped()
	e.mu.Unlock()
	if l.sent {
		e.mesh.Post(&l.mail)
	}
}

// A message's head is what it holds.
func putMail(h *transport.Head, m engine.Mem) {
	h[0] = byte(m.Type)
	binary.LittleEndian.PutUint64(h[8:], uint64(m.N))
}

func readMail(h *transport.Head) (n uint64, t kernel.DType) {
	return binary.LittleEndian.Uint64(h[8:]), kernel.DType(h[0])
}

// Finish waits until a message has been delivered.
func (e *Engine) Finish(ctx context.Context, m *engine.Message) error {
	e.mu.Lock()
	l := e.letters[m]
	delete(e.letters, m)
	e.mu.Unlock()
	if l == nil {
		return e.fail(&engine.Failure{
			Kind: engine.ErrInvalid, Op: m.Op(), Seq: m.Seq, Rank: e.rank,
			Facts: engine.Facts{Text: "the message was not posted"},
		})
	}
	if err := l.finish(ctx); err != nil {
		return e.fail(e.explain(ctx, err, m.Op(), m.Seq, l.waiting))
	}
	e.mu.Lock()
	if len(e.spare) < keepLetters {
		l.m, l.mail.Body, l.mail.State = nil, nil, nil
		e.spare = append(e.spare, l)
	}
	e.mu.Unlock()
	return nil
}

// finish goes to the transport also when the operation is over before it has
// begun: only then nobody reads or writes the message's memory.
func (l *letter) finish(ctx context.Context) error {
	over := ctx.Err()
	if l.e.opt.ParkingLot.Stopped() {
		over = wait.ErrStopped
	}
	if !l.sent {
		return over
	}
	l.w.Begin(ctx, l.e.opt.Timeout)
	err := l.e.mesh.Finish(l.w, &l.mail)
	l.w.End()
	switch {
	case over != nil:
		return over
	case errors.As(err, new(*transport.LengthError)):
		return l.refuse(&l.mail.Head)
	}
	return err
}

// accept compares what is sent with what is received.
func (l *letter) accept(sent *transport.Head) error {
	if n, t := readMail(sent); n != uint64(l.m.Mem.N) || t != l.m.Mem.Type {
		return l.refuse(sent)
	}
	return nil
}

func (l *letter) refuse(sent *transport.Head) error {
	n, t := readMail(sent)
	return l.m.Mismatch(l.e.rank, n, t)
}

// waiting returns what a message waits for.
func (l *letter) waiting() engine.Facts { return l.m.Awaited() }
