package tcp

import (
	"time"

	"github.com/tutti-go/tutti/internal/transport"
)

// keepNotes bounds what a messenger keeps for reuse.
const keepNotes = 1024

// A note is what a messenger knows about one message.
type note struct {
	msg     *transport.Message // nil: an announcement, or given up
	id      uint64             // the sender's
	length  int                // of the announced message
	head    transport.Head     // of the announced message
	at      int                // how much of the body has moved
	matched bool               // a receive has met its announcement
	cleared bool               // and said so to the sender
	done    bool
	err     error
	partner *note // of a receive from this rank itself: the send
	next    *note // in a queue

	token chan struct{}
	timer *time.Timer
}

// note returns a note for a message.
func (s *messenger) note(m *transport.Message) *note {
	var x *note
	if n := len(s.spare); n > 0 {
		x = s.spare[n-1]
		s.spare = s.spare[:n-1]
	} else {
		x = &note{token: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		x.timer.Stop()
	}
	x.msg = m
	return x
}

// keep takes back the note of a message that is over. A note that is not done
// was given up in a state in which the peer may still refer to it.
func (s *messenger) keep(x *note) {
	x.timer.Stop()
	if !x.done || len(s.spare) >= keepNotes {
		return
	}
	select {
	case <-x.token:
	default:
	}
	*x = note{token: x.token, timer: x.timer}
	s.spare = append(s.spare, x)
}

// finish ends a message.
func (x *note) finish(err error) {
	x.done, x.err = true, err
	x.nudge()
}

// nudge lets the goroutine in Finish look again.
func (x *note) nudge() {
	select {
	case x.token <- struct{}{}:
	default:
	}
}

// A queue is notes in the order of their arrival.
type queue struct{ first, last *note }

func (q *queue) push(x *note) {
	x.next = nil
	if q.last == nil {
		q.first = x
	} else {
		q.last.next = x
	}
	q.last = x
}

func (q *queue) pop() *note {
	x := q.first
	if x != nil {
		q.remove(x)
	}
	return x
}

// remove takes a note out and reports whether it was there.
func (q *queue) remove(x *note) bool {
	var before *note
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

func (t tags) push(tag int, x *note) {
	q := t[tag]
	q.push(x)
	t[tag] = q
}

func (t tags) pop(tag int) *note {
	q := t[tag]
	x := q.pop()
	t.store(tag, q)
	return x
}

func (t tags) remove(tag int, x *note) bool {
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
