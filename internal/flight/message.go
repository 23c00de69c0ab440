package flight

import "github.com/tutti-go/tutti/internal/engine"

// A message is the record of one side of a message.
type message struct {
	number         uint64
	kind           uint64 // send or recv, and the type
	count, bytes   uint64
	peer, tag      uint64
	started, ended uint64
	failed         uint64
}

// BeginMessage records that a message was posted. now is a time from Now. The
// record's number is zero while it is written, so that readers ignore it.
func (l *Log) BeginMessage(number, now uint64, m *engine.Message) {
	r := &l.msgs[number%Size]
	kind := recv
	if m.Send {
		kind = send
	}
	put(&r.number, 0)
	put(&r.kind, uint64(kind)|uint64(m.Mem.Type)<<typeAt)
	put(&r.count, uint64(m.Mem.N))
	put(&r.bytes, uint64(m.Mem.Bytes()))
	put(&r.peer, uint64(m.Peer))
	put(&r.tag, uint64(m.Tag))
	put(&r.started, now)
	put(&r.ended, 0)
	put(&r.failed, 0)
	put(&r.number, number)
	l.sums[kind].add(1, r.bytes)
}

// EndMessage records that a message was delivered, or has failed.
func (l *Log) EndMessage(number, now uint64, failed bool) {
	r := &l.msgs[number%Size]
	if r.number != number {
		return // its record was overwritten by later messages
	}
	s := &l.sums[verbOf(r.kind)]
	put(&r.ended, now)
	if failed {
		put(&r.failed, 1)
		put(&s.failed, s.failed+1)
	}
	s.time(now - r.started)
}
