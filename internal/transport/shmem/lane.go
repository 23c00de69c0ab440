package shmem

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/match"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

var (
	errNotPosted = errors.New("shmem: the message was not posted to a rank of the group")
	errClosed    = errors.New("this rank has closed the group")
)

// Options configures a Lane. The functions must not wait, except ReadProcess, and must not call the
// Lane.
type Options struct {
	Rank int
	// Memory is this process's mapping of each rank's part, by rank, of Bytes each. The caller
	// unmaps it only after Close.
	Memory []unsafe.Pointer
	// ParkingLot is where the waiters of Finish wait. It is one of wait.NewPeerParkingLot.
	ParkingLot *wait.ParkingLot
	// ReadProcess copies bytes from an address in another rank's process to dst. The error ESRCH
	// says that the process has ended. Nil: no process can be read.
	ReadProcess func(rank int, dst unsafe.Pointer, addr uint64, bytes int) error
	// Locate returns the place of memory of this rank in a region that the other ranks map. The
	// region zero says that the memory is in none. Nil: there are no regions.
	Locate func(p unsafe.Pointer, bytes int) (region uint64, offset int64)
	// ReadRegion copies bytes from a place in a region of another rank to dst. It reports false if
	// this process does not map all of the place.
	ReadRegion func(rank int, region uint64, offset int64, dst unsafe.Pointer, bytes int) bool
	// Left returns why another rank sends and receives no more, or nil.
	Left func(rank int) error
	// Withdrawn reports whether the group of another rank has failed, so that its memory may have
	// changed since its messages were posted. A receive of such a message waits until the ParkingLot
	// is stopped, because this process's group does not know the cause yet.
	Withdrawn func(rank int) bool

	sizes *sizes // nil: the sizes that Bytes uses; tests set smaller ones
}

// A Lane is the message lane of one rank. It is safe for concurrent use.
//
// One goroutine in Finish, the driver, polls the memory of the other ranks until its own message has
// changed. Other goroutines in Finish stand by: they park. A driver that returns wakes them, and one
// of them becomes the next driver.
type Lane struct {
	opt     Options
	lot     *wait.ParkingLot
	layout  layout
	part    unsafe.Pointer // this rank's
	handler transport.Handler

	mu       sync.Mutex
	peers    []peer  // by rank; this rank's own has no memory
	others   []*peer // all but this rank's own
	active   []*peer // peers with open messages, and some that had; only the driver removes
	changes  []*peer // peers for which this rank has written something; see showChanges
	anyOpen  int     // unmatched receives from any rank
	turn     int     // where the next poll begins
	inbox    match.Inbox
	slab     slab
	slabMax  int // data of more bytes stays in the sender's buffer
	spare    *announcement
	numSpare int
	inside   int // goroutines in Finish
	standing int // goroutines in standBy
	closed   bool
	driver   *state // the message of the driver; nil: there is no driver
	grown    bool   // the driver may have to watch more
	cond     driverCond

	vacant atomic.Bool   // the driver has returned while others stand by
	events atomic.Uint64 // incremented when every Finish should look at its message
	fence  atomic.Uint64
	kick   atomic.Uint64 // incremented when the driver should look at its message
}

// New returns the lane of this process's rank.
func New(opt Options) *Lane {
	n := len(opt.Memory)
	s := defaultSizes(n)
	if opt.sizes != nil {
		s = *opt.sizes
	}
	l := &Lane{opt: opt, lot: opt.ParkingLot, layout: newLayout(n, s), part: opt.Memory[opt.Rank], peers: make([]peer, n)}
	l.slab = newSlab(&l.layout)
	l.slabMax = s.slabMax
	if opt.ReadProcess == nil {
		l.slabMax = math.MaxInt // as large as a block
	}
	l.cond.lane = l
	for r := range l.peers {
		p := &l.peers[r]
		p.setup(l, r)
		if r != opt.Rank {
			l.others = append(l.others, p)
		}
	}
	return l
}

// Handle implements transport.Messenger.
func (l *Lane) Handle(h transport.Handler) { l.handler = h }

// Post implements transport.Messenger.
func (l *Lane) Post(m *transport.Message) {
	l.mu.Lock()
	for m != nil {
		next := m.Next
		m.Next = nil
		l.post(m)
		m = next
	}
	l.nudge()
	l.unlock()
}

func (l *Lane) post(m *transport.Message) {
	x, ok := m.State.(*state)
	if !ok || x.lane != l || x.m != nil {
		x = newState(l)
		m.State = x
	}
	x.begin(m)
	switch {
	case l.closed:
		x.finish(&transport.LostError{Peer: m.Peer, Err: errClosed})
	case m.Peer == transport.AnyRank && !m.Send:
		l.postReceive(x)
	case m.Peer < 0 || m.Peer >= len(l.peers):
		x.finish(errNotPosted)
	case m.Send:
		l.open(x, &l.peers[m.Peer])
		l.postSend(x)
	default:
		l.open(x, &l.peers[m.Peer])
		l.postReceive(x)
	}
}

// unlock shows the peers what this rank has done for them, and releases l.mu.
func (l *Lane) unlock() {
	l.showChanges()
	l.mu.Unlock()
}

// showChanges publishes what this rank has taken from the peers, and wakes the peers that sleep.
func (l *Lane) showChanges() {
	if len(l.changes) == 0 {
		return
	}
	for _, p := range l.changes {
		if p.shows {
			p.publishTaken()
		}
	}
	l.fence.Store(0) // a barrier: the peers' words are loaded after the stores are visible
	for _, p := range l.changes {
		p.changed = false
		if p.sleeping.Load() != 0 {
			wait.Ring(&p.out.bell)
		}
	}
	l.changes = l.changes[:0]
}

func (l *Lane) postSend(x *state) {
	p := x.peer
	if p.rank != l.opt.Rank {
		if p.queue.first != nil || !p.announce(x) {
			p.queue.push(x)
		}
		return
	}
	a := l.newAnnouncement(p, x.m.Tag)
	a.message, a.send, a.place.bytes = x.m.Kind, x, int64(len(x.m.Body))
	x.own = a
	if r := l.inbox.Announce(&a.Announcement); r != nil {
		l.match(r.Owner.(*state), a)
	}
}

func (l *Lane) postReceive(x *state) {
	x.receive.From, x.receive.Tag = x.m.Peer, x.m.Tag
	if x.peer == nil {
		l.anyOpen++
		l.grown = true
	}
	if a := l.inbox.Post(&x.receive); a != nil {
		l.match(x, a.Owner.(*announcement))
	}
}

// bind makes a receive one from peer p, whose message it gets.
func (l *Lane) bind(x *state, p *peer) {
	if x.peer == nil {
		l.anyOpen--
		l.open(x, p)
	}
}

// accept asks the Handler whether receive x takes a message of p.
func (l *Lane) accept(x *state, p *peer, kind uint8, bytes int) error {
	x.m.From, x.m.Kind, x.m.Len = p.rank, kind, bytes
	err := l.handler.Accept(x.m)
	if err == nil && len(x.m.Body) < bytes {
		err = &transport.LengthError{Peer: p.rank, Want: len(x.m.Body), Sent: bytes}
	}
	return err
}

// match records that receive x gets the message of a. A short message is taken at once.
func (l *Lane) match(x *state, a *announcement) {
	l.bind(x, a.peer)
	x.from, x.accepted, a.matched = a, false, x
	if a.send == nil && a.kind != kindBuffer {
		if done, err := l.receive(x); done || x.taken && len(x.peer.reports) == 0 {
			x.finish(err)
			return
		}
	}
	x.m.Matched.Store(true)
	if a.send != nil {
		a.send.m.Matched.Store(true)
	}
	x.signal()
}

// unmatch returns the message of receive x to the Inbox.
func (l *Lane) unmatch(x *state) {
	a := x.from
	x.from, a.matched = nil, nil
	x.m.Matched.Store(false)
	if a.send != nil {
		a.send.m.Matched.Store(false)
	}
	if r := l.inbox.Return(&a.Announcement); r != nil {
		l.match(r.Owner.(*state), a)
	}
}

// open counts x as an open message with a peer, which the driver polls.
func (l *Lane) open(x *state, p *peer) {
	x.peer = p
	p.open++
	if x.m.Send {
		p.openSends++
	}
	l.grown = true
	if !p.listed && p.rank != l.opt.Rank {
		p.listed = true
		l.active = append(l.active, p)
	}
}

// release ends the use of x.
func (l *Lane) release(x *state) {
	if x.m == nil {
		return
	}
	if x.peer != nil {
		x.peer.open--
		if x.m.Send {
			x.peer.openSends--
		}
	}
	x.m = nil
}

// nudge makes the driver look at its message if something has happened that it does not poll for.
func (l *Lane) nudge() {
	if x := l.driver; x != nil && (x.changed || l.grown || l.events.Load() != l.cond.events) {
		l.kick.Add(1)
		if sleeping(l.part).Load() != 0 {
			wait.Ring(&l.kick)
		}
	}
}

// wakeAll makes every Finish look at its message.
func (l *Lane) wakeAll() {
	l.events.Add(1)
	l.lot.WakeGoroutines()
}

// Notify implements transport.Messenger.
func (l *Lane) Notify(peer int, n *transport.Note) {
	if peer < 0 || peer >= len(l.peers) || peer == l.opt.Rank {
		return
	}
	l.mu.Lock()
	if p := &l.peers[peer]; !l.closed && p.queue.first == nil && len(p.reports) == 0 && p.hasRoom() {
		r := p.nextOut()
		*(*transport.Note)(r.data()) = *n
		p.put(r, meta(kindNote, 0, len(n)), 0)
	}
	l.unlock()
}

// Finish implements transport.Messenger.
func (l *Lane) Finish(w *wait.Waiter, m *transport.Message) error {
	if m.Done() {
		return nil
	}
	x, ok := m.State.(*state)
	if !ok {
		return errNotPosted
	}
	l.mu.Lock()
	if x.m != m {
		l.mu.Unlock()
		if m.Done() {
			return nil
		}
		return errNotPosted
	}
	l.inside++
	err := l.await(w, x)
	l.release(x)
	l.nudge()
	l.inside--
	l.unlock()
	return err
}

// await waits until a message is done. l.mu is held.
func (l *Lane) await(w *wait.Waiter, x *state) error {
	for {
		x.changed = false
		done, err := l.advance(x)
		if done {
			return err
		}
		if !x.changed {
			if l.driver != nil {
				l.nudge()
				err = l.standBy(w, x)
			} else {
				err = l.drive(w, x)
			}
		}
		if err == nil {
			continue
		}
		switch {
		case x.done:
			return x.err
		case x.taken && (x.ended != nil || !isContextError(err)):
			return nil
		case x.ended != nil && errors.Is(err, wait.ErrTimeout):
			err = x.ended
		case x.ended == nil && isContextError(err) && (x.taken || x.m.Patient && x.receivesStream()):
			x.ended = err
			w.Linger(transport.PatientFor)
			continue
		}
		if x.m.Send {
			if l.withdrawSend(x) {
				return x.err
			}
		} else {
			l.withdrawReceive(x)
		}
		return err
	}
}

// isContextError reports whether err is the error of a context.
func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// advance does what is possible for a message without waiting. It reports whether the message is
// done. After an error the message is withdrawn.
func (l *Lane) advance(x *state) (done bool, err error) {
	if x.done {
		return true, x.err
	}
	if x.from != nil && !x.taken && !l.closed {
		if done, err := l.receive(x); done {
			return true, err
		}
	}
	if x.taken && len(x.peer.reports) == 0 {
		return true, nil
	}
	if err := l.failure(x); err != nil {
		switch {
		case x.taken:
			return true, nil
		case !x.m.Send:
			l.withdrawReceive(x)
		case l.withdrawSend(x):
			return true, x.err
		}
		return true, err
	}
	return false, nil
}

// failure returns why a message cannot complete any more, or nil.
func (l *Lane) failure(x *state) error {
	if l.closed {
		return &transport.LostError{Peer: x.m.Peer, Err: errClosed}
	}
	if x.peer != nil {
		if x.peer.err == nil {
			return nil
		}
		return x.peer.lost()
	}
	for _, p := range l.others {
		if p.err == nil {
			return nil
		}
	}
	if len(l.others) == 0 {
		return nil
	}
	return l.others[len(l.others)-1].lost()
}

// withdrawReceive ends a receive whose data was not taken.
func (l *Lane) withdrawReceive(x *state) {
	x.m.Untaken, x.m.OtherTag = true, nil
	if x.from == nil {
		l.inbox.Cancel(&x.receive)
		x.m.OtherTag = l.inbox.OtherTag(x.receive.From)
		if x.peer == nil {
			l.anyOpen--
		}
		return
	}
	if x.receivesStream() {
		x.peer.abortStream()
	}
	l.unmatch(x)
}

// withdrawSend ends a send. It reports true if the receiver has taken the data meanwhile. The memory
// of an announced message is not reused: the receiver may still read it.
func (l *Lane) withdrawSend(x *state) (done bool) {
	p := x.peer
	switch {
	case x.own != nil:
		return l.withdrawOwn(x)
	case p.queue.remove(x):
	default:
		p.removeSend(x)
		if p.outgoing.x == x {
			p.outgoing.x, p.outgoing.at = nil, 0
		}
	}
	return false
}

// withdrawOwn is withdrawSend of a message to this rank. A receive that it is matched with waits
// again.
func (l *Lane) withdrawOwn(x *state) (done bool) {
	a := x.own
	r := a.matched
	for r != nil && r.copying {
		l.unlock()
		runtime.Gosched()
		l.mu.Lock()
	}
	if x.done {
		return true
	}
	if r == nil {
		l.inbox.Withdraw(&a.Announcement)
	} else {
		l.repost(r)
	}
	l.recycle(a)
	return false
}

// repost makes a receive wait again whose message has been withdrawn.
func (l *Lane) repost(x *state) {
	x.from = nil
	x.m.Matched.Store(false)
	if x.m.Peer == transport.AnyRank {
		x.peer.open--
		x.peer = nil
	}
	l.postReceive(x)
	x.signal()
}

// Close fails all messages, and later ones. When it returns, the memory is not accessed any more.
func (l *Lane) Close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		l.wakeAll()
		l.nudge()
	}
	for l.inside > 0 {
		l.unlock()
		time.Sleep(closePause)
		l.mu.Lock()
	}
	l.unlock()
}

// closePause is the time between two looks of Close at the goroutines in Finish.
const closePause = 100 * time.Microsecond
