package flight

import (
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// A message is the record of one side of a message.
type message struct {
	number         uint64
	kind           uint64 // send or recv, and the type
	count, bytes   uint64
	peer, tag      uint64
	started, ended uint64 // zero: not recorded
	state          uint64
	wait           wait.FirstWait // when it began to wait for its peer
}

// everyMessage is the sampling interval of small messages that do not wait. It is odd, because a
// SendRecv has two messages.
const everyMessage = every - 1

// The states of a message.
const (
	messageRuns = iota
	messageDone
	messageFailed
)

// BeginMessage records that a message was posted. The waiter of the message records in
// m.FirstWait when it begins to wait. The record's number is zero while it is written,
// so that readers ignore it.
func (l *Log) BeginMessage(number uint64, m *engine.Message) {
	r := &l.msgs[number%Size]
	kind := recv
	if m.Send {
		kind = send
	}
	bytes := m.Mem.Bytes()
	var now uint64
	if bytes >= large || number%everyMessage == 0 {
		now = l.now()
	}
	put(&r.number, 0)
	put(&r.kind, uint64(kind)|uint64(m.Mem.Type)<<typeAt)
	put(&r.count, uint64(m.Mem.N))
	put(&r.bytes, uint64(bytes))
	put(&r.peer, uint64(m.Peer))
	put(&r.tag, uint64(m.Tag))
	put(&r.started, now)
	put(&r.ended, 0)
	put(&r.state, messageRuns)
	if number <= Size {
		r.wait.Base = l.began // once: an earlier message of this record may still read it
	}
	r.wait.Take()
	m.FirstWait = &r.wait
	put(&r.number, number)
	l.sums[kind].add(1, r.bytes)
}

// EndMessage records that a message was delivered, or has failed.
func (l *Log) EndMessage(number uint64, failed bool) {
	r := &l.msgs[number%Size]
	if r.number != number {
		return // its record was overwritten by later messages
	}
	s := &l.sums[verbOf(r.kind)]
	state := uint64(messageDone)
	if failed {
		state = messageFailed
		put(&s.failed, s.failed+1)
	}
	if begin := r.begin(); begin != 0 {
		now := l.now()
		put(&r.ended, now)
		s.time(now - begin)
	}
	put(&r.state, state)
}

// begin returns when the message was posted or began to wait; zero: not recorded.
func (r *message) begin() uint64 {
	if at := load(&r.started); at != 0 {
		return at
	}
	return uint64(r.wait.Value())
}
