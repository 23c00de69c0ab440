package tcp

import (
	"time"

	"github.com/tutti-go/tutti/internal/transport"
)

// maxSpareStates bounds the states that a messenger keeps for reuse.
const maxSpareStates = 1024

// A msgState is the messenger's state of one message. messenger.mu guards it.
type msgState struct {
	msg      *transport.Message // nil: an announcement, or a withdrawn message
	id       uint64             // chosen by the sender
	length   int                // bytes, of the announced message
	head     transport.Head     // of the announced message
	moved    int                // bytes of the body that are written or read
	matched  bool               // a receive has its announcement
	cleared  bool               // the sender was sent kindClear
	done     bool
	err      error
	selfSend *msgState // of a receive from this rank itself: the matching send
	next     *msgState // in a queue

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

// recycle keeps the state of a completed message for reuse. A withdrawn message is not done, and
// the peer may still refer to its state.
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

// A queue is a list of states, oldest first.
type queue struct{ first, last *msgState }

func (q *queue) push(x *msgState) {
	x.next = nil
	if q.last == nil {
		q.first = x
	} else {
		q.last.next = x
	}
	q.last = x
}

func (q *queue) pop() *msgState {
	x := q.first
	if x != nil {
		q.remove(x)
	}
	return x
}

// remove removes a state and reports whether it was in the queue.
func (q *queue) remove(x *msgState) bool {
	var before *msgState
	for o := q.first; o != nil; before, o = o, o.next {
		if o != x {
			continue
		}
		if before == nil {
			q.first = o.next
		} else {
			before.next = o.next
		}
		if q.last == o {
			q.last = before
		}
		o.next = nil
		return true
	}
	return false
}

// tags maps each tag to its queue. Empty queues are removed.
type tags map[int]queue

func (t tags) push(tag int, x *msgState) {
	q := t[tag]
	q.push(x)
	t[tag] = q
}

func (t tags) pop(tag int) *msgState {
	q := t[tag]
	x := q.pop()
	t.store(tag, q)
	return x
}

func (t tags) remove(tag int, x *msgState) bool {
	q := t[tag]
	found := q.remove(x)
	t.store(tag, q)
	return found
}

// store sets the queue of a tag, or removes it if it is empty.
func (t tags) store(tag int, q queue) {
	if q.first == nil {
		delete(t, tag)
	} else {
		t[tag] = q
	}
}
