package shmem

import (
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/match"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// A state is the lane's state of one message of this rank. It stays in Message.State for the next
// use. Lane.mu guards all fields but woken and cond.
type state struct {
	lane    *Lane
	m       *transport.Message // nil: not posted
	peer    *peer              // the other rank; of a receive from any rank: nil until it is matched
	done    bool
	err     error
	changed bool // something happened since Finish last looked

	// of a receive
	receive  match.Receive
	from     *announcement // what it is matched with
	accepted bool          // the Handler has accepted from
	copying  bool          // its data is being copied without the lock
	taken    bool          // the data is taken; only the sender is not notified yet
	ended    error         // of the context, while Finish waits for the data nevertheless

	// of a send
	id      uint64
	block   int           // offset of its data in this rank's part; zero: none
	watched bool          // its record has the flag watches
	own     *announcement // of a send to this rank
	next    *state        // in a queue

	standing bool // its Finish is in standBy
	woken    atomic.Bool
	cond     standByCond
}

func newState(l *Lane) *state {
	x := &state{lane: l}
	x.receive.Owner = x
	x.cond.x = x
	return x
}

// begin prepares x for a message that is posted.
func (x *state) begin(m *transport.Message) {
	x.m, x.peer, x.done, x.err, x.changed = m, nil, false, nil, false
	x.from, x.accepted, x.taken, x.ended = nil, false, false, nil
	x.block, x.watched, x.own = 0, false, nil
	m.Untaken = false
	m.Posted++
	if m.Matched.Load() {
		m.Matched.Store(false)
	}
}

// finish completes the message.
func (x *state) finish(err error) {
	x.done, x.err = true, err
	if m := x.m; err == nil {
		if x.standing {
			m.Matched.Store(true) // its goroutine may take a while to return
		}
		x.lane.release(x)
		publish(&m.Delivered, m.Posted)
	}
	x.signal()
}

// signal makes Finish look at the message again.
func (x *state) signal() {
	x.changed = true
	if x.standing {
		x.woken.Store(true)
		x.lane.lot.WakeGoroutines()
	}
}

// A standByCond is true when a goroutine that waits for another one to poll should look at its
// message.
type standByCond struct {
	x    *state
	seen uint64 // Lane.events
}

func (c *standByCond) Ready() bool {
	l := c.x.lane
	return c.x.woken.Load() || l.vacant.Load() || l.events.Load() != c.seen
}

var _ wait.Cond = (*standByCond)(nil)

// An announcement is a message of another rank, or of this rank to itself, that is not taken yet.
// Lane.mu guards it.
type announcement struct {
	match.Announcement
	peer    *peer
	id      uint64
	kind    uint8
	message uint8  // Message.Kind
	data    []byte // kindInline: the body
	place   place
	// unreadable says that place cannot be read from the sender's process.
	unreadable bool
	send       *state // of this rank; nil: from another rank
	matched    *state // the receive that it is matched with

	prev, next *announcement // messages of the same rank that are not taken, by id; next: also spare ones
}

// newAnnouncement returns an unused announcement.
func (l *Lane) newAnnouncement(p *peer, tag int) *announcement {
	a := l.spare
	if a == nil {
		a = new(announcement)
		a.Owner = a
	} else {
		l.spare, a.next = a.next, nil
		l.numSpare--
	}
	a.peer, a.From, a.Tag = p, p.rank, tag
	return a
}

// maxSpare bounds the announcements that a lane keeps for reuse.
const maxSpare = 1024

// recycle keeps an announcement for reuse.
func (l *Lane) recycle(a *announcement) {
	a.send, a.matched, a.unreadable = nil, nil, false
	if l.numSpare < maxSpare {
		a.next, l.spare = l.spare, a
		l.numSpare++
	}
}

// A queue is a list of states, oldest first.
type queue struct{ first, last *state }

func (q *queue) push(x *state) {
	x.next = nil
	if q.last == nil {
		q.first = x
	} else {
		q.last.next = x
	}
	q.last = x
}

func (q *queue) pop() *state {
	x := q.first
	if q.first = x.next; q.first == nil {
		q.last = nil
	}
	x.next = nil
	return x
}

// remove removes a state. It reports false if the state is not in the queue.
func (q *queue) remove(x *state) bool {
	var before *state
	for o := q.first; o != nil; before, o = o, o.next {
		if o != x {
			continue
		}
		if before == nil {
			q.first = x.next
		} else {
			before.next = x.next
		}
		if q.last == x {
			q.last = before
		}
		x.next = nil
		return true
	}
	return false
}
