package tcp

import (
	"time"

	"github.com/tutti-go/tutti/internal/match"
	"github.com/tutti-go/tutti/internal/transport"
)

// maxSpareStates bounds the states that a messenger keeps for reuse.
const maxSpareStates = 1024

// A msgState is the messenger's state of one message: of a message of this rank, or of a message
// that a peer has announced. messenger.mu guards it.
type msgState struct {
	msg     *transport.Message // nil: an announcement of a peer, or a withdrawn message
	peer    *peerMessages      // nil: a receive from any rank that is not matched
	id      uint64             // chosen by the sender
	length  int                // bytes, of the announced message
	kind    uint8              // of the announced message; see transport.Message
	moved   int                // bytes of the body that are written or read
	offer   *msgState          // of a receive: the announcement that it is matched with, until it is cleared
	cleared bool               // of a receive: the sender may send the data
	done    bool
	err     error

	receive      match.Receive      // of a receive
	announcement match.Announcement // of a message that a peer or this rank announces to this rank

	wake  chan struct{}
	timer *time.Timer
}

// newState returns a state for a message, a spare one if possible.
func (s *messenger) newState(m *transport.Message) *msgState {
	var x *msgState
	if n := len(s.spare); n > 0 {
		x = s.spare[n-1]
		s.spare = s.spare[:n-1]
	} else {
		x = &msgState{wake: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		x.timer.Stop()
	}
	x.msg = m
	return x
}

// recycle keeps the state of a completed message for reuse. A withdrawn message to which the peer may
// still refer is not done.
func (s *messenger) recycle(x *msgState) {
	x.timer.Stop()
	if !x.done || len(s.spare) >= maxSpareStates {
		return
	}
	select {
	case <-x.wake:
	default:
	}
	*x = msgState{wake: x.wake, timer: x.timer}
	s.spare = append(s.spare, x)
}

// finish completes a message and wakes its Finish.
func (x *msgState) finish(err error) {
	x.done, x.err = true, err
	x.signal()
}

// signal makes the goroutine in Finish check the state again.
func (x *msgState) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}
