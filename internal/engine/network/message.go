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

// pendingMessage is a posted message with its state in the transport.
type pendingMessage struct {
	e    *Engine
	m    *engine.Message
	msg  transport.Message
	w    *wait.Waiter
	sent bool // the transport has the message
}

// maxIdleMessages bounds the number of pendingMessages that are kept for reuse.
const maxIdleMessages = 256

// Post passes a message to the transport. After the group has failed it does
// nothing; Finish then returns the failure.
func (e *Engine) Post(m *engine.Message) {
	e.mu.Lock()
	var p *pendingMessage
	if n := len(e.idleMessages); n > 0 {
		p = e.idleMessages[n-1]
		e.idleMessages = e.idleMessages[:n-1]
	} else {
		p = &pendingMessage{e: e, w: wait.NewWaiter(e.opt.ParkingLot)}
		p.msg.Accept = p.accept
	}
	p.m = m
	p.msg.Send, p.msg.Peer, p.msg.Tag, p.msg.Body = m.Send, m.Peer, m.Tag, bytesOf(m.Mem)
	putMessageHead(&p.msg.Head, m.Mem)
	e.pending[m] = p
	p.sent = !e.opt.ParkingLot.Stopped()
	e.mu.Unlock()
	if p.sent {
		e.mesh.Post(&p.msg)
	}
}

// putMessageHead encodes type and count of a message; the receiver compares them
// with its own.
func putMessageHead(h *transport.Head, m engine.Mem) {
	h[0] = byte(m.Type)
	binary.LittleEndian.PutUint64(h[8:], uint64(m.N))
}

func readMessageHead(h *transport.Head) (n uint64, t kernel.DType) {
	return binary.LittleEndian.Uint64(h[8:]), kernel.DType(h[0])
}

// Finish waits until a message is delivered. On an error it fails the group.
func (e *Engine) Finish(ctx context.Context, m *engine.Message) error {
	e.mu.Lock()
	p := e.pending[m]
	delete(e.pending, m)
	e.mu.Unlock()
	if p == nil {
		return e.fail(&engine.Failure{
			Kind: engine.ErrInvalid, Op: m.Op(), Seq: m.Seq, Rank: e.rank,
			Facts: engine.Facts{Text: "the message was not posted"},
		})
	}
	if err := p.finish(ctx); err != nil {
		return e.fail(e.explain(ctx, err, m.Op(), m.Seq, p.awaited))
	}
	e.mu.Lock()
	if len(e.idleMessages) < maxIdleMessages {
		p.m, p.msg.Body, p.msg.State = nil, nil, nil
		e.idleMessages = append(e.idleMessages, p)
	}
	e.mu.Unlock()
	return nil
}

// finish waits until the transport has delivered or abandoned the message. It calls
// the transport's Finish even if the group has failed or ctx has ended, because
// only after that the transport no longer accesses the message's memory. A message
// that was never passed to the transport needs no wait.
func (p *pendingMessage) finish(ctx context.Context) error {
	ended := ctx.Err()
	if p.e.opt.ParkingLot.Stopped() {
		ended = wait.ErrStopped
	}
	if !p.sent {
		return ended
	}
	p.w.Begin(ctx, p.e.opt.Timeout)
	err := p.e.mesh.Finish(p.w, &p.msg)
	p.w.End()
	switch {
	case ended != nil:
		return ended
	case errors.As(err, new(*transport.LengthError)):
		return p.refuse(&p.msg.Head)
	}
	return err
}

// accept checks that the sent message has the type and count of the receive. The
// transport calls it.
func (p *pendingMessage) accept(sent *transport.Head) error {
	if n, t := readMessageHead(sent); n != uint64(p.m.Mem.N) || t != p.m.Mem.Type {
		return p.refuse(sent)
	}
	return nil
}

// refuse returns the failure for a message of another type or count.
func (p *pendingMessage) refuse(sent *transport.Head) error {
	n, t := readMessageHead(sent)
	return p.m.Mismatch(p.e.rank, n, t)
}

// awaited returns, for an error, what a message waits for.
func (p *pendingMessage) awaited() engine.Facts { return p.m.Awaited() }
