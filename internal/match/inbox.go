// Package match matches the receives of one rank with the messages that other ranks announce to it,
// in MPI's order: messages of one sender with one tag match in the order in which they were
// announced, and a receive from any rank takes the message that was announced first.
//
// The package does no I/O and has no lock. Every method of an Inbox needs the lock of its owner.
package match

// AnyRank as the sender of a Receive matches messages of all ranks.
const AnyRank = -1

// keepLanes bounds the number of lanes of an Inbox. Above it, lanes are removed when they become
// empty.
const keepLanes = 64

// A Receive is a posted receive.
type Receive struct {
	From  int // the sender, or AnyRank
	Tag   int
	Owner any // for the owner of the Inbox

	number uint64 // position in the order of Post
	lane   *lane  // where it waits; nil: it does not wait
	place  node[*Receive]
}

// An Announcement is a message that another rank offers.
type Announcement struct {
	From  int
	Tag   int
	Owner any // for the owner of the Inbox

	number  uint64 // position in the order of Announce
	lane    *lane  // where it waits; nil: it does not wait
	place   node[*Announcement]
	arrival node[*Announcement]
}

// A lane holds what waits for one sender and one tag. At most one of its lists is not empty.
type lane struct {
	key       laneKey
	any       *lane // receives from any rank with this tag; the lane itself if it is that lane
	receives  list[*Receive]
	announced list[*Announcement]
	arrivals  list[*Announcement] // of the lane for any rank: the announcements of all senders with its tag
	users     int                 // of the lane for any rank: the number of other lanes with its tag
}

type laneKey struct{ from, tag int }

// An Inbox holds the receives and announcements of one rank that are not matched. The zero Inbox is
// empty.
type Inbox struct {
	lanes  map[laneKey]*lane
	last   *lane // the lane of the last lookup; nil: none
	posted uint64
	heard  uint64
	idle   []*lane // removed lanes, for reuse
}

// Post matches r with the first announcement that fits and returns it. If there is none, r waits in
// the Inbox and Post returns nil.
func (b *Inbox) Post(r *Receive) *Announcement {
	l := b.lane(r.From, r.Tag)
	first := l.announced.first
	if r.From == AnyRank {
		first = l.arrivals.first
	}
	if first != nil {
		b.take(first.value)
		return first.value
	}
	b.posted++
	r.number, r.lane, r.place.value = b.posted, l, r
	l.receives.insert(&r.place, nil)
	return nil
}

// Announce matches a with the first receive that fits and returns it. If there is none, a waits in
// the Inbox and Announce returns nil.
func (b *Inbox) Announce(a *Announcement) *Receive {
	l := b.lane(a.From, a.Tag)
	b.heard++
	a.number = b.heard
	return b.offer(a, l)
}

// First returns the receive that Take would remove.
func (b *Inbox) First(from, tag int) *Receive {
	l := b.lane(from, tag)
	r := l.firstReceive()
	if r == nil || r.lane != l { // l may have been made for this call
		b.release(l)
	}
	return r
}

// Take removes and returns the first receive that a message of a sender with a tag fits. The message
// must be newer than the announcements that wait. Take returns nil if there is no such receive.
func (b *Inbox) Take(from, tag int) *Receive {
	l := b.lane(from, tag)
	r := b.takeFrom(l)
	if r == nil {
		b.release(l)
	}
	return r
}

// takeFrom removes and returns the first receive that an announcement in l fits, or returns nil.
func (b *Inbox) takeFrom(l *lane) *Receive {
	r := l.firstReceive()
	if r == nil {
		return nil
	}
	named := r.lane == l
	b.cancel(r)
	if !named { // l may have been made for the announcement
		b.release(l)
	}
	return r
}

// Return undoes a match: a waits again, before the announcements that arrived after it, unless
// another receive fits. That receive is returned.
func (b *Inbox) Return(a *Announcement) *Receive {
	return b.offer(a, b.lane(a.From, a.Tag))
}

// offer matches a, of lane l, with the first receive that fits. If there is none, a waits.
func (b *Inbox) offer(a *Announcement, l *lane) *Receive {
	r := b.takeFrom(l)
	if r == nil {
		b.wait(a, l)
	}
	return r
}

// Cancel removes a receive. It reports false if the receive does not wait.
func (b *Inbox) Cancel(r *Receive) bool {
	if r.lane == nil {
		return false
	}
	b.cancel(r)
	return true
}

// Withdraw removes an announcement. It reports false if the announcement does not wait.
func (b *Inbox) Withdraw(a *Announcement) bool {
	if a.lane == nil {
		return false
	}
	b.take(a)
	return true
}

// EachReceive calls f for each waiting receive. f must not change the Inbox.
func (b *Inbox) EachReceive(f func(*Receive)) {
	for _, l := range b.lanes {
		for n := l.receives.first; n != nil; n = n.next {
			f(n.value)
		}
	}
}

// EachAnnouncement calls f for each waiting announcement. f must not change the Inbox.
func (b *Inbox) EachAnnouncement(f func(*Announcement)) {
	for _, l := range b.lanes {
		for n := l.announced.first; n != nil; n = n.next {
			f(n.value)
		}
	}
}

// OtherTag returns the lowest tag of the waiting announcements from a rank, or from any rank; nil if there are none.
func (b *Inbox) OtherTag(from int) (tag *int) {
	b.EachAnnouncement(func(a *Announcement) {
		if (from == AnyRank || a.From == from) && (tag == nil || a.Tag < *tag) {
			tag = &a.Tag
		}
	})
	if tag == nil {
		return nil
	}
	lowest := *tag // the announcement is reused
	return &lowest
}

// firstReceive returns the receive that an announcement in l matches: the first posted receive from
// the announcement's sender or from any rank. It returns nil if no such receive waits.
func (l *lane) firstReceive() *Receive {
	named, any := l.receives.first, l.any.receives.first
	switch {
	case named == nil && any == nil:
		return nil
	case any == nil, named != nil && named.value.number < any.value.number:
		return named.value
	}
	return any.value
}

// wait inserts a, which has its number, into l. An announcement that was not matched before goes to
// the ends of the lists.
func (b *Inbox) wait(a *Announcement, l *lane) {
	a.lane, a.place.value, a.arrival.value = l, a, a
	l.announced.insert(&a.place, after(&l.announced, a.number))
	l.any.arrivals.insert(&a.arrival, after(&l.any.arrivals, a.number))
}

// after returns the first node of a higher number, or nil if all announcements of the list have
// lower ones.
func after(l *list[*Announcement], number uint64) *node[*Announcement] {
	if l.last == nil || l.last.value.number < number {
		return nil
	}
	n := l.first
	for n.value.number < number {
		n = n.next
	}
	return n
}

func (b *Inbox) take(a *Announcement) {
	l := a.lane
	a.lane = nil
	l.announced.remove(&a.place)
	l.any.arrivals.remove(&a.arrival)
	b.release(l)
}

func (b *Inbox) cancel(r *Receive) {
	l := r.lane
	r.lane = nil
	l.receives.remove(&r.place)
	b.release(l)
}

// lane returns the lane for a sender and a tag, and makes it if there is none.
func (b *Inbox) lane(from, tag int) *lane {
	key := laneKey{from, tag}
	if l := b.last; l != nil && l.key == key {
		return l
	}
	l := b.lanes[key]
	if l == nil {
		l = b.newLane(key)
	}
	b.last = l
	return l
}

func (b *Inbox) newLane(key laneKey) *lane {
	var l *lane
	if n := len(b.idle); n > 0 {
		l, b.idle = b.idle[n-1], b.idle[:n-1]
	} else {
		l = new(lane)
	}
	*l = lane{key: key}
	if key.from == AnyRank {
		l.any = l
	} else {
		l.any = b.lane(AnyRank, key.tag)
		l.any.users++
	}
	if b.lanes == nil {
		b.lanes = make(map[laneKey]*lane)
	}
	b.lanes[key] = l
	return l
}

// release removes l if it is empty and there are many lanes.
func (b *Inbox) release(l *lane) {
	if len(b.lanes) <= keepLanes || l.receives.first != nil || l.announced.first != nil || l.users > 0 {
		return
	}
	delete(b.lanes, l.key)
	if b.last == l {
		b.last = nil
	}
	if len(b.idle) < keepLanes {
		b.idle = append(b.idle, l)
	}
	if l.any != l {
		l.any.users--
		b.release(l.any)
	}
}
