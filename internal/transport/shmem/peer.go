package shmem

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/prefetch"
	"github.com/tutti-go/tutti/internal/transport"
)

// recordsPerShow is how many records are taken before the peer is told so that it may write more.
const recordsPerShow = 8

// maxDrained bounds the records that the driver takes after its message is done.
const maxDrained = 256

// maxAnnounced bounds the messages from one rank to another that are announced and not taken.
const maxAnnounced = 1 << 20

// A peer holds the messages between this rank and another one. Lane.mu guards all fields. The driver
// reads seen, watchHeader and watchRecords without the lock, and only the driver writes them.
type peer struct {
	lane     *Lane
	rank     int
	part     unsafe.Pointer // the peer's
	sleeping *atomic.Uint64 // of the peer
	out, in  *header        // what this rank and the peer write for each other
	outRing  unsafe.Pointer
	inRing   unsafe.Pointer
	seen     seen
	// The driver polls the header and the records only if a message waits for them. Otherwise its
	// polls would slow the peer's stores down.
	watchHeader, watchRecords bool

	changed   bool  // in Lane.changes
	err       error // why no message can be completed any more; nil: that is possible
	open      int   // messages of this rank with the peer
	openSends int   // of these, sends
	listed    bool  // in Lane.active

	// to the peer
	records    uint64   // records written
	room       uint64   // number of the first record for which there is no room, as far as is known
	lastLines  int      // bytes of the last record of a message after its first cache line
	lastID     uint64   // of the last message announced
	numSends   int      // messages announced and not taken
	numWatched int      // of these, the ones with the flag watches
	sends      []*state // of these, the ones with an id after base; the index is the low part of the id
	base       uint64
	oldSends   map[uint64]*state // the other ones, by id
	queue      queue             // sends that are not announced yet
	reports    []uint64          // ids of messages of the peer that are taken, for records
	outgoing   outgoing

	// from the peer
	taken, shownTaken       uint64 // see header.completed; shown: what the header says
	consumed, shownConsumed uint64 // see header.consumed
	shows                   bool   // publishTaken is called by the next showChanges
	lastPeerID              uint64
	first                   *announcement // messages that are not taken, by id
	last                    *announcement
	announced               int
	incoming                incoming
	ready                   ready // what the peer said last
	promised                ready // what this rank said last to the peer
	unreadable              bool  // the system refuses to read the peer's process
}

// A ready says that a receive waits for a message and cannot be withdrawn.
type ready struct {
	id    uint64 // of the message; zero: no receive is known
	tag   int
	kind  uint8
	bytes int
}

// seen are the values up to which a peer's memory is processed.
type seen struct {
	records                                     uint64 // records processed
	completed, consumed, request, taken, filled uint64
}

func (p *peer) setup(l *Lane, rank int) {
	p.lane, p.rank = l, rank
	if rank == l.opt.Rank {
		return
	}
	p.part = l.opt.Memory[rank]
	p.sleeping = sleeping(p.part)
	p.out, p.in = l.layout.header(l.part, rank), l.layout.header(p.part, l.opt.Rank)
	p.outRing, p.inRing = l.layout.ring(l.part, rank), l.layout.ring(p.part, l.opt.Rank)
	p.room = uint64(l.layout.entries)
	p.sends = make([]*state, l.layout.entries)
}

// entry returns the record at a position of a ring.
func (p *peer) entry(ring unsafe.Pointer, position uint64) *record {
	l := &p.lane.layout
	return (*record)(unsafe.Add(ring, int(position&uint64(l.entries-1))*l.record))
}

// hasRoom reports whether the ring has room for a record.
func (p *peer) hasRoom() bool {
	if p.records < p.room {
		return true
	}
	p.room = min(p.in.consumed.Load(), p.records) + uint64(p.lane.layout.entries)
	return p.records < p.room
}

// nextOut returns the next record. There is room for it.
func (p *peer) nextOut() *record { return p.entry(p.outRing, p.records) }

// put publishes the next record after its data was written.
func (p *peer) put(r *record, meta uint64, tag int) {
	r.meta, r.tag = meta, int64(tag)
	p.records++
	publish(&r.position, p.records)
	p.ring()
}

// ring makes showChanges wake the peer. It is called after every store that the peer may wait for.
func (p *peer) ring() {
	if !p.changed {
		p.changed = true
		p.lane.changes = append(p.lane.changes, p)
	}
}

// show makes showChanges publish which messages and records of the peer are taken.
func (p *peer) show() {
	p.shows = true
	p.ring()
}

// publishTaken publishes which messages and records of the peer are taken.
func (p *peer) publishTaken() {
	p.shows = false
	if p.taken != p.shownTaken {
		p.shownTaken = p.taken
		publish(&p.out.completed, p.taken)
	}
	if p.consumed != p.shownConsumed {
		p.shownConsumed = p.consumed
		publish(&p.out.consumed, p.consumed)
	}
}

// drain takes records of the peer while it has receives to match, so that many small messages are
// taken together.
func (p *peer) drain() {
	for n := 1; n < maxDrained && p.open > p.openSends && p.poll(); n++ {
		if n%recordsPerShow == 0 {
			p.lane.showChanges()
		}
	}
}

// announce announces a send. It reports false if there is no room.
func (p *peer) announce(x *state) bool {
	if !p.hasRoom() || p.numSends >= maxAnnounced {
		return false
	}
	p.lastID++
	x.id = p.lastID
	p.addSend(x)
	r := p.nextOut()
	l, body := p.lane, x.m.Body
	n := len(body)
	r.ready = 0
	if n <= l.layout.inline() {
		copy(unsafe.Slice((*byte)(r.data()), n), body)
		word := meta(kindInline, x.m.Kind, n)
		if p.open > p.openSends {
			r.ready = p.readyReceive(x.m)
			x.watched = true
			p.numWatched++
			word |= watches
		}
		p.put(r, word, x.m.Tag)
		p.lastLines = n + recordHeadBytes - cacheLine
		if x.id == p.ready.id {
			p.finishReady(x)
		}
		return true
	}
	to := (*place)(r.data())
	kind := uint8(kindBuffer)
	*to = place{bytes: int64(n), addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(body))))}
	if l.opt.Locate != nil {
		to.region, to.offset = l.opt.Locate(unsafe.Pointer(unsafe.SliceData(body)), n)
	}
	if to.region == 0 && n <= l.slabMax {
		if x.block = l.slab.take(n); x.block != 0 {
			kernel.Copy(unsafe.Add(l.part, x.block), unsafe.Pointer(unsafe.SliceData(body)), n)
			kind, to.offset = kindSlab, int64(x.block)
		}
	}
	p.put(r, meta(kind, x.m.Kind, placeBytes), x.m.Tag)
	return true
}

// readyReceive returns what record.ready says in the record of m.
func (p *peer) readyReceive(m *transport.Message) uint64 {
	r := p.lane.inbox.First(p.rank, m.Tag)
	if r == nil || r.From != p.rank {
		return 0
	}
	if to := r.Owner.(*state).m; to.Patient || to.Kind != m.Kind || len(to.Body) != len(m.Body) {
		return 0
	}
	p.promised = ready{p.lastPeerID + 1, m.Tag, m.Kind, len(m.Body)}
	return p.promised.id
}

// takeReady records what the record of a message says about the peer's receives. It reports false if
// the peer has failed.
func (p *peer) takeReady(r *record, kind uint8, n int) bool {
	if r.ready > p.lastID+1 {
		p.corrupt("number of an expected message", r.ready)
		return false
	}
	p.ready = ready{r.ready, int(r.tag), kind, n}
	if x := p.send(r.ready); x != nil {
		p.finishReady(x)
	}
	return true
}

// finishReady completes a send, whose data is in the ring, if the ready receive gets it.
func (p *peer) finishReady(x *state) {
	if m := x.m; p.ready == (ready{x.id, m.Tag, m.Kind, len(m.Body)}) {
		p.finishSend(x.id)
	}
}

// addSend adds an announced send. If the ids in p.sends span too much, p.sends grows, or a few old
// sends move to p.oldSends.
func (p *peer) addSend(x *state) {
	p.base = max(p.base, p.seen.completed)
	n := uint64(len(p.sends))
	switch {
	case p.lastID-p.base <= n:
	case uint64(p.numSends) > n/2:
		more := make([]*state, 2*n)
		for id := p.base + 1; id < p.lastID; id++ {
			more[id&(2*n-1)] = p.sends[id&(n-1)]
		}
		p.sends = more
	default:
		p.moveOldSends(p.base + n/2)
	}
	*p.sendAt(x.id) = x
	p.numSends++
}

// moveOldSends moves the sends up to an id from p.sends to p.oldSends.
func (p *peer) moveOldSends(last uint64) {
	for id := p.base + 1; id <= last; id++ {
		at := p.sendAt(id)
		if *at == nil {
			continue
		}
		if p.oldSends == nil {
			p.oldSends = make(map[uint64]*state)
		}
		p.oldSends[id], *at = *at, nil
	}
	p.base = last
}

// sendAt returns the place in p.sends for an id.
func (p *peer) sendAt(id uint64) **state { return &p.sends[id&uint64(len(p.sends)-1)] }

// removeSend removes an announced send.
func (p *peer) removeSend(x *state) {
	if x.id <= p.base {
		delete(p.oldSends, x.id)
	} else {
		*p.sendAt(x.id) = nil
	}
	p.numSends--
	if x.watched {
		p.numWatched--
	}
}

// send returns an announced send that is not taken, or nil.
func (p *peer) send(id uint64) *state {
	if id <= p.seen.completed || id > p.lastID {
		return nil
	}
	if id <= p.base {
		return p.oldSends[id]
	}
	return *p.sendAt(id)
}

// finishSend completes a send whose data is taken. Nothing happens if it was withdrawn.
func (p *peer) finishSend(id uint64) {
	x := p.send(id)
	if x == nil {
		return
	}
	p.removeSend(x)
	if p.outgoing.x == x {
		p.endOutgoing()
	}
	if x.block != 0 {
		p.lane.slab.put(x.block)
		x.block = 0
	}
	x.finish(nil)
}

// flush writes records for what waits for room.
func (p *peer) flush() {
	n := 0
	for ; n < len(p.reports) && p.hasRoom(); n++ {
		r := p.nextOut()
		*(*uint64)(r.data()) = p.reports[n]
		p.put(r, meta(kindTaken, 0, 8), 0)
	}
	if n > 0 {
		if p.reports = append(p.reports[:0], p.reports[n:]...); len(p.reports) == 0 {
			p.lane.wakeAll()
		}
	}
	for p.queue.first != nil && p.announce(p.queue.first) {
		p.queue.pop()
	}
}

// hasNews reports whether the peer has written something that is not processed. The driver calls it
// without the lock.
func (p *peer) hasNews() bool {
	in, s := p.in, &p.seen
	if p.watchRecords && p.entry(p.inRing, s.records).position.Load() == s.records+1 {
		return true
	}
	return p.watchHeader && (in.completed.Load() != s.completed || in.consumed.Load() != s.consumed ||
		in.request.Load() != s.request || in.taken.Load() != s.taken || in.filled.Load() != s.filled)
}

// watch updates what the driver polls.
func (p *peer) watch() {
	// Of several sends, a record reports one that is taken before an older one.
	p.watchRecords = p.open > p.openSends || p.lane.anyOpen > 0 || p.numSends > 1 || p.numWatched > 0
	p.watchHeader = p.openSends > 0 || p.incoming.x != nil || len(p.reports) > 0
}

// poll processes what the peer has written since the last poll, at most one record. It reports
// whether there was a record.
func (p *peer) poll() bool {
	if p.err != nil {
		return false
	}
	if p.watchHeader && !p.pollHeader() || !p.watchRecords {
		return false
	}
	s := &p.seen
	r := p.entry(p.inRing, s.records)
	if r.position.Load() != s.records+1 {
		return false
	}
	p.take(r)
	return true
}

// pollHeader processes what the peer has written to its header. It reports false if the peer has
// failed.
func (p *peer) pollHeader() bool {
	in, s := p.in, &p.seen
	if c := in.completed.Load(); c != s.completed {
		p.complete(c)
	}
	if c := in.consumed.Load(); c != s.consumed {
		if c-s.consumed > p.records-s.consumed {
			p.corrupt("number of consumed records", c)
			return false
		}
		s.consumed = c
		p.flush()
	}
	if in.request.Load() != s.request || in.taken.Load() != s.taken || in.filled.Load() != s.filled {
		p.pollStreams()
	}
	return p.err == nil
}

// complete completes the sends up to an id.
func (p *peer) complete(id uint64) {
	if id-p.seen.completed > p.lastID-p.seen.completed {
		p.corrupt("number of completed messages", id)
		return
	}
	for next := p.seen.completed + 1; next <= id; next++ {
		p.finishSend(next)
		p.seen.completed = next
	}
	if p.lastLines > 0 {
		// The next message is likely to be as long. Its first line is not prefetched, because the
		// peer polls it.
		prefetch.Write(unsafe.Add(unsafe.Pointer(p.nextOut()), cacheLine), p.lastLines)
	}
	if !p.watchRecords {
		// A reply is likely. If it is polled already, this would take its line from the peer.
		prefetch.Read(unsafe.Pointer(p.entry(p.inRing, p.seen.records)), cacheLine)
	}
	if p.queue.first != nil {
		p.flush()
	}
}

// take processes a record.
func (p *peer) take(r *record) {
	meta, l := r.meta, p.lane
	kind, n := uint8(meta), int(meta>>32)
	p.seen.records++
	switch kind {
	case kindInline, kindSlab, kindBuffer:
		p.takeMessage(r, kind, uint8(meta>>8), n)
		return
	case kindTaken:
		id := *(*uint64)(r.data())
		if id > p.lastID {
			p.corrupt("number of a message", id)
			return
		}
		p.finishSend(id)
	case kindNote:
		note := *(*transport.Note)(r.data())
		l.handler.Note(p.rank, &note)
	default:
		p.corrupt("kind of a record", uint64(kind))
		return
	}
	p.consume()
}

// takeMessage announces a message.
func (p *peer) takeMessage(r *record, kind, message uint8, n int) {
	l := p.lane
	if kind == kindInline {
		if n > l.layout.inline() {
			p.corrupt("length of a message", uint64(n))
			return
		}
		if r.ready != 0 && !p.takeReady(r, message, n) {
			return
		}
		if p.deliver(r, message, n) {
			return
		}
	}
	a := l.newAnnouncement(p, int(r.tag))
	a.kind, a.message = kind, message
	if kind == kindInline {
		a.place = place{bytes: int64(n)}
		a.data = append(a.data[:0], unsafe.Slice((*byte)(r.data()), n)...)
	} else {
		a.place = *(*place)(r.data())
		if a.place.bytes < 0 || kind == kindSlab && !l.layout.inSlab(a.place.offset, a.place.bytes) {
			p.corrupt("place of a message", uint64(a.place.offset))
			return
		}
	}
	if p.announced >= maxAnnounced {
		p.fail(fmt.Errorf("it has sent %d messages without a matching receive", p.announced))
		return
	}
	p.lastPeerID++
	a.id = p.lastPeerID
	p.link(a)
	p.consume()
	if to := l.inbox.Announce(&a.Announcement); to != nil {
		l.match(to.Owner.(*state), a)
	}
}

// deliver copies a message from its record to the receive that waits for it. It reports false if
// there is none.
func (p *peer) deliver(r *record, kind uint8, n int) bool {
	l := p.lane
	if n > cacheLine-recordHeadBytes {
		prefetch.Read(unsafe.Add(unsafe.Pointer(r), cacheLine), n+recordHeadBytes-cacheLine)
	}
	for {
		to := l.inbox.Take(p.rank, int(r.tag))
		if to == nil {
			return false
		}
		x := to.Owner.(*state)
		l.bind(x, p)
		if err := l.accept(x, p, kind, n); err != nil {
			x.m.Untaken = true
			x.finish(err)
			continue
		}
		copy(x.m.Body, unsafe.Slice((*byte)(r.data()), n))
		p.lastPeerID++
		x.taken = true
		if r.meta&watches != 0 && p.promised == (ready{p.lastPeerID, int(r.tag), kind, n}) {
			p.takePromised()
		} else {
			p.consume()
			p.reportTaken(p.lastPeerID, p.first == nil)
		}
		if len(p.reports) == 0 {
			x.finish(nil)
		} else {
			x.m.Matched.Store(true)
			x.signal()
		}
		return true
	}
}

// link adds an announcement to the list of untaken messages.
func (p *peer) link(a *announcement) {
	a.prev, a.next = p.last, nil
	if p.last == nil {
		p.first = a
	} else {
		p.last.next = a
	}
	p.last = a
	p.announced++
}

func (p *peer) unlink(a *announcement) {
	if a.prev == nil {
		p.first = a.next
	} else {
		a.prev.next = a.next
	}
	if a.next == nil {
		p.last = a.prev
	} else {
		a.next.prev = a.prev
	}
	a.prev, a.next = nil, nil
	p.announced--
}

// consume frees the records that are processed for the peer's use.
func (p *peer) consume() {
	p.consumed = p.seen.records
	p.show()
}

// report tells the peer that the data of its message was taken.
func (p *peer) report(a *announcement) {
	oldest := a.prev == nil
	p.unlink(a)
	p.reportTaken(a.id, oldest)
}

// takePromised records that the promised message is taken. The peer needs no report, because it
// completes the message when it polls the record with the promise.
func (p *peer) takePromised() {
	if p.first == nil {
		p.taken = p.lastPeerID
	}
	if p.seen.records-p.shownConsumed >= uint64(p.lane.layout.entries/4) {
		p.consume()
	}
}

// reportTaken tells the peer that the data of its message was taken.
func (p *peer) reportTaken(id uint64, oldest bool) {
	if !oldest {
		p.reports = append(p.reports, id)
		p.flush()
	} else {
		p.taken = p.lastPeerID
		if p.first != nil {
			p.taken = p.first.id - 1
		}
		if p.openSends == 0 {
			// A reply is likely. Its cache line arrives together with the header's.
			prefetch.Write(unsafe.Pointer(p.nextOut()), cacheLine)
		}
	}
	p.show()
}

// lost returns the error of a message with a failed peer.
func (p *peer) lost() error { return &transport.LostError{Peer: p.rank, Err: p.err} }

// corrupt fails the peer because of a value that it cannot have written.
func (p *peer) corrupt(what string, value uint64) {
	p.fail(fmt.Errorf("its shared memory is damaged: the %s is %d", what, value))
}

// fail makes the messages with the peer fail.
func (p *peer) fail(err error) {
	if p.err == nil {
		p.err = err
		p.lane.wakeAll()
	}
}

// checkLeft fails the peer if it has left.
func (p *peer) checkLeft() {
	if p.err != nil || p.lane.opt.Left == nil {
		return
	}
	err := p.lane.opt.Left(p.rank)
	if err == nil {
		return
	}
	// The rank may have taken or announced messages before it left.
	for p.poll() {
	}
	p.fail(err)
}
