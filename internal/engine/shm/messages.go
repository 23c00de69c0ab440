package shm

import (
	"context"
	"errors"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/p2p"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/transport/shmem"
)

// newMessages returns the state of this rank's messages over a lane.
func (e *Engine) newMessages(lane transport.Messenger) *p2p.Messages {
	return p2p.New(p2p.Options{
		Rank: e.rank, Size: e.Size(), Lane: lane, ParkingLot: e.g.parking, Timeout: e.g.opt.Timeout, Fail: e.failMessage,
	})
}

// newLane returns the message lane of a process.
func (e *Engine) newLane(s *Shared) *shmem.Lane {
	parts := make([]unsafe.Pointer, len(s.Memory))
	for r, p := range s.Memory {
		parts[r] = unsafe.Add(p, s.messagesAt(len(parts)))
	}
	return shmem.New(shmem.Options{
		Rank: e.rank, Memory: parts, ParkingLot: e.g.parking, ReadProcess: s.ReadProcess,
		Locate: e.locate, ReadRegion: e.readRegion,
		Left: func(rank int) error {
			if e.g.boards[rank].left().Load() != 0 {
				return transport.ErrClosed
			}
			return nil
		},
		Withdrawn: func(rank int) bool { return e.g.boards[rank].withdrawn().Load() != 0 },
	})
}

// locate returns the place of this rank's memory in a region of Alloc; zero: it is in none.
func (e *Engine) locate(p unsafe.Pointer, bytes int) (region uint64, offset int64) {
	a := e.regionAddrOf(p, bytes)
	return a.region, a.off
}

// readRegion copies from a place in another rank's region. It reports false if this process does not
// map the place.
func (e *Engine) readRegion(rank int, region uint64, offset int64, dst unsafe.Pointer, bytes int) bool {
	e.g.regionReads.RLock()
	defer e.g.regionReads.RUnlock()
	r := e.g.region(region)
	if r == nil || offset < 0 || bytes < 0 || offset > int64(r.Bytes-bytes) {
		return false
	}
	kernel.Copy(dst, unsafe.Add(r.Base[rank], offset), bytes)
	return true
}

// Post announces a message. See engine.Engine.
func (e *Engine) Post(msgs ...*engine.Message) { e.messages.Post(msgs...) }

// Finish waits until a message has been delivered. See engine.Engine.
func (e *Engine) Finish(ctx context.Context, m *engine.Message) error {
	return e.messages.Finish(ctx, m)
}

// failMessage ends the group because of an error of a message.
func (e *Engine) failMessage(ctx context.Context, err error, m *engine.Message) *engine.Failure {
	if e.g.shared != nil {
		// Before the failure, as in endFailed.
		e.board.withdrawn().Store(1)
	}
	if lost := (*transport.LostError)(nil); errors.As(err, &lost) {
		err = e.messageLost(lost, m)
	}
	return e.g.fail(e.failureOf(ctx, err, m.Op(), m.Seq, m.Awaited))
}

// messageLost returns the failure of a message whose peer is lost.
func (e *Engine) messageLost(lost *transport.LostError, m *engine.Message) error {
	missed := m.Missed(lost.Peer, e.rank, e.Size())
	if errors.Is(lost, transport.ErrClosed) {
		return e.rankLeft(missed, m.Op(), m.Seq)
	}
	return &engine.Failure{
		Kind: engine.ErrRankLost, Op: m.Op(), Seq: m.Seq, Rank: e.rank, Lost: missed, Err: lost,
		Facts: engine.Facts{Event: engine.RanksLost, Loss: engine.Exited},
	}
}
