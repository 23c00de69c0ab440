package tcp

import (
	"time"

	"github.com/tutti-go/tutti/internal/transport"
)

// keepNotes bounds what a messenger keeps for reuse.
const maxSpareStates = 1024

// A note is what a messenger knows about one message.
type msgState struct {
	msg      *transport.Message // nil: an announcement, or given up
	id       uint64             // the sender's
	length   int                // of the announced message
	head     transport.Head     // of the announced message
	moved    int                // how much of the body has moved
	matched  bool               // a receive has met its announcement
	cleared  bool               // and said so to the sender
	done     bool
	err      error
	selfSend *msgState // of a receive from this rank itself: the send
	next     *msgState // in a queue

	wake  chan struct{}
	timer *time.Timer
}

// note returns a note for a message.
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

// keep takes back the note of a message that is over. A note that is not done
// was given up in a state in which the peer may still refer to it.
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

// finish ends a message.
func (x *msgState) finish(err error) {
	x.done, x.err = true, err
	x.signal()
}

// nudge lets the goroutine in Finish look again.
func (x *msgState) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// A queue is notes in the order of their arrival.
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

// remove takes a note out and reports whether it was there.
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

// tags holds a queue for every tag that has one.
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

func (t tags) store(tag int, q queue) {
	if q.first == nil {
		delete(t, tag)
	} else {
		t[tag] = q
	}
}
