package shm

import (
	"context"
	"errors"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/p2p"
	"github.com/tutti-go/tutti/internal/transport"
)

// newMessages returns the state of this rank's messages over a lane.
func (e *Engine) newMessages(lane transport.Messenger) *p2p.Messages {
	return p2p.New(p2p.Options{
		Rank: e.rank, Size: e.Size(), Lane: lane, ParkingLot: e.g.parking, Timeout: e.g.opt.Timeout, Fail: e.failMessage,
	})
}

// Post announces a message. See engine.Engine.
func (e *Engine) Post(m *engine.Message) {
	if s := e.g.shared; s != nil {
		s.Messages.Post(m)
		return
	}
	e.messages.Post(m)
}

// Finish waits until a message has been delivered. See engine.Engine.
func (e *Engine) Finish(ctx context.Context, m *engine.Message) error {
	if e.g.shared != nil {
		return e.finishShared(ctx, m)
	}
	return e.messages.Finish(ctx, m)
}

// failMessage ends the group because of an error of a message.
func (e *Engine) failMessage(ctx context.Context, err error, m *engine.Message) *engine.Failure {
	if lost := (*transport.LostError)(nil); errors.As(err, &lost) {
		err = e.rankLeft(m.Missed(lost.Peer, e.rank, e.Size()), m.Op(), m.Seq)
	}
	return e.g.fail(e.failureOf(ctx, err, m.Op(), m.Seq, m.Awaited))
}

// finishShared lets the engine for messages finish m. A failure of that engine
// fails this group too.
func (e *Engine) finishShared(ctx context.Context, m *engine.Message) error {
	err := e.g.shared.Messages.Finish(ctx, m)
	if f := (*engine.Failure)(nil); errors.As(err, &f) {
		return e.g.fail(f)
	}
	return err
}
