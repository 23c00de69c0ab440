package mem

import (
	"sync"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/match"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// LaneOptions configure the message lanes of a group of ranks in one process.
type LaneOptions struct {
	Ranks int
	// ParkingLot returns where a rank's waiters park.
	ParkingLot func(rank int) *wait.ParkingLot
	// Gone returns a word that becomes nonzero when a rank can no longer exchange messages with a
	// peer. The goroutine that sets the word wakes the ParkingLot of the rank.
	Gone func(rank, peer int) *atomic.Uint64
	// Why returns why the word of Gone is not zero. Nil: the peer has closed its side.
	Why func(rank, peer int) error
}

// A Lane is one rank's message lane among ranks in one process. A sender pushes its message onto the
// arrivals of the receiver's lane. A goroutine of the receiver, in Post or Finish of a receive, moves
// the arrivals to the inbox, and copies the data from the sender's memory.
type Lane struct {
	opt     *LaneOptions
	lanes   []*Lane // of all ranks
	rank    int
	lot     *wait.ParkingLot
	handler transport.Handler

	mu    sync.Mutex
	inbox match.Inbox // receives of this rank and messages to it; guarded by mu

	_        [64]byte                    // the words around it are for this rank alone
	arrivals atomic.Pointer[laneMessage] // a stack: the newest message first
	_        [64]byte
}

var _ transport.Messenger = (*Lane)(nil)

// NewLanes returns the message lanes of a group, by rank.
func NewLanes(opt LaneOptions) []*Lane {
	lanes := make([]*Lane, opt.Ranks)
	for r := range lanes {
		lanes[r] = &Lane{opt: &opt, lanes: lanes, rank: r, lot: opt.ParkingLot(r)}
	}
	return lanes
}

// The progress of a message. A receive goes from posted to matched. A send goes from posted to
// reading, while the receiver uses its memory, and to delivered or back to posted. A send that is
// withdrawn goes from posted to withdrawn.
const (
	posted    = 0
	matched   = 1 // of a receive
	reading   = 1 // of a send
	delivered = 2
	withdrawn = 3
)

// A laneMessage is the state of a transport.Message, which keeps it for reuse.
type laneMessage struct {
	progress atomic.Uint64
	next     *laneMessage // of a send in the arrivals: the one before it
	kind     uint8        // of a send
	body     []byte       // of a send
	announce match.Announcement
	receive  match.Receive
	msg      *transport.Message
	send     *laneMessage // of a matched receive: the matching send
	arrived  arrived      // what a receive waits for
}

// Handle sets the handler. See transport.Messenger.
func (l *Lane) Handle(h transport.Handler) { l.handler = h }

// Post announces messages. See transport.Messenger.
func (l *Lane) Post(m *transport.Message) {
	for m != nil {
		next := m.Next
		m.Next = nil
		l.post(m)
		m = next
	}
}

func (l *Lane) post(m *transport.Message) {
	x, ok := m.State.(*laneMessage)
	if !ok {
		x = new(laneMessage)
		x.receive.Owner, x.announce.Owner = x, x
		m.State = x
	}
	x.msg, x.send = m, nil
	x.progress.Store(posted)
	if !m.Send {
		x.receive.From, x.receive.Tag = m.Peer, m.Tag
		l.mu.Lock()
		if l.arrivals.Load() != nil {
			l.takeArrivals()
		}
		if a := l.inbox.Post(&x.receive); a != nil {
			x.pair(a)
		}
		l.mu.Unlock()
		return
	}
	to := l.lanes[m.Peer]
	x.announce.From, x.announce.Tag, x.kind, x.body = l.rank, m.Tag, m.Kind, m.Body
	for {
		x.next = to.arrivals.Load()
		if to.arrivals.CompareAndSwap(x.next, x) {
			break
		}
	}
	to.lot.Wake(nil)
}

// takeArrivals moves the arrivals to the inbox, the oldest first. It wakes receives that they match.
// l.mu is held.
func (l *Lane) takeArrivals() {
	var oldest *laneMessage
	for x := l.arrivals.Swap(nil); x != nil; {
		next := x.next
		x.next, oldest = oldest, x
		x = next
	}
	matches := false
	for x := oldest; x != nil; {
		next := x.next
		x.next = nil
		if r := l.inbox.Announce(&x.announce); r != nil {
			r.Owner.(*laneMessage).pair(&x.announce)
			matches = true
		}
		x = next
	}
	if matches {
		l.lot.Wake(nil)
	}
}

// pair matches receive x with a send. The lock of the receiver's lane is held.
func (x *laneMessage) pair(a *match.Announcement) {
	x.send = a.Owner.(*laneMessage)
	x.msg.Matched.Store(true)
	x.progress.Store(matched)
}

// Finish waits until a message is delivered. See transport.Messenger.
func (l *Lane) Finish(w *wait.Waiter, m *transport.Message) error {
	x := m.State.(*laneMessage)
	if m.Send {
		return l.finishSend(w, x)
	}
	if err := l.awaitSend(w, x); err != nil {
		return l.cancel(x, err)
	}
	send := x.send
	// From here to the next change of the progress the sender does not return, so its memory stays
	// valid.
	if l.lot.Stopped() {
		return wait.ErrStopped
	}
	if !send.progress.CompareAndSwap(posted, reading) {
		m.Untaken = true
		return wait.ErrStopped // the sender has withdrawn the message
	}
	m.From, m.Kind, m.Len = send.announce.From, send.kind, len(send.body)
	from := l.lanes[m.From]
	if err := l.handler.Accept(m); err != nil {
		send.progress.Store(posted)
		from.lot.Wake(&send.progress)
		return l.unmatch(x, err)
	}
	copyAll(m.Body, send.body)
	send.progress.Store(delivered)
	from.lot.Wake(&send.progress)
	return nil
}

// finishSend waits until the receiver has taken the data.
func (l *Lane) finishSend(w *wait.Waiter, x *laneMessage) error {
	ok, err := w.AtLeast(&x.progress, delivered, l.opt.Gone(l.rank, x.msg.Peer))
	switch {
	case err != nil:
	case !ok:
		err = l.lost(x.msg.Peer)
	case l.lot.Stopped():
		return wait.ErrStopped
	default:
		x.body = nil
		return nil
	}
	to := l.lanes[x.msg.Peer]
	for !to.withdraw(x) {
		w.WaitWhileEqual(&x.progress, reading)
	}
	return err
}

// withdraw removes a send to this rank. It reports false if the receiver is using its memory.
func (l *Lane) withdraw(x *laneMessage) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takeArrivals() // x may be one of them
	l.inbox.Withdraw(&x.announce)
	return x.progress.CompareAndSwap(posted, withdrawn) || x.progress.Load() == delivered
}

// cancel ends a receive that err has ended. If it was matched meanwhile, the message waits for
// another receive.
func (l *Lane) cancel(x *laneMessage, err error) error {
	l.mu.Lock()
	cancelled := l.inbox.Cancel(&x.receive)
	other := l.inbox.OtherTag(x.receive.From)
	l.mu.Unlock()
	x.msg.Untaken, x.msg.OtherTag = true, other
	if cancelled {
		return err
	}
	return l.unmatch(x, err)
}

// unmatch gives the message of a matched receive to another receive, or lets it wait, unless its
// sender has withdrawn it.
func (l *Lane) unmatch(x *laneMessage, err error) error {
	x.msg.Untaken, x.msg.OtherTag = true, nil
	x.msg.Matched.Store(false)
	var other *laneMessage
	l.mu.Lock()
	if s := x.send; s.progress.Load() != withdrawn {
		if r := l.inbox.Return(&s.announce); r != nil {
			other = r.Owner.(*laneMessage)
			other.pair(&s.announce)
		}
	}
	l.mu.Unlock()
	if other != nil {
		l.lot.Wake(&other.progress)
	}
	return err
}

// spinPolls is how often a receive looks for its message before it waits by other means.
const spinPolls = 1000

// awaitSend waits until a receive is matched. It returns an error if the peer, or with a receive from
// any rank every peer, is gone first.
func (l *Lane) awaitSend(w *wait.Waiter, x *laneMessage) error {
	x.arrived = arrived{l, x}
	for polls := spinPolls; ; polls = 1 {
		for range polls {
			if x.progress.Load() >= matched {
				return nil
			}
			if l.arrivals.Load() != nil {
				break
			}
		}
		if l.arrivals.Load() == nil {
			if err := w.For(&x.arrived); err != nil {
				return err
			}
		}
		gone := x.arrived.gone() // a message that was sent before is matched below
		l.mu.Lock()
		l.takeArrivals()
		l.mu.Unlock()
		if gone && x.progress.Load() < matched {
			return l.lost(x.lostPeer())
		}
	}
}

// lostPeer returns the rank to name when every peer of a receive is gone.
func (x *laneMessage) lostPeer() int {
	l := x.arrived.l
	if x.msg.Peer == transport.AnyRank {
		return (l.rank + 1) % len(l.lanes)
	}
	return x.msg.Peer
}

// arrived is true when a receive is matched, messages have arrived, or no peer of the receive is
// left.
type arrived struct {
	l *Lane
	x *laneMessage
}

// Ready reports whether the condition is true.
func (a *arrived) Ready() bool {
	return a.x.progress.Load() >= matched || a.l.arrivals.Load() != nil || a.gone()
}

// gone reports whether no peer of the receive is left.
func (a *arrived) gone() bool {
	l, peer := a.l, a.x.msg.Peer
	if peer != transport.AnyRank {
		return l.opt.Gone(l.rank, peer).Load() != 0
	}
	for r := range l.lanes {
		if r != l.rank && l.opt.Gone(l.rank, r).Load() == 0 {
			return false
		}
	}
	return len(l.lanes) > 1
}

// lost returns the error of a peer that is gone.
func (l *Lane) lost(peer int) error {
	if l.opt.Why != nil {
		return l.opt.Why(l.rank, peer)
	}
	return &transport.LostError{Peer: peer, Err: transport.ErrClosed}
}

// Notify passes a note to a peer. See transport.Messenger.
func (l *Lane) Notify(peer int, n *transport.Note) { l.lanes[peer].handler.Note(l.rank, n) }

// copyPieceBytes bounds one copy. The garbage collector can stop the goroutine between two.
const copyPieceBytes = 256 << 10

// copyAll copies src to the start of dst.
func copyAll(dst, src []byte) {
	for len(src) > 0 {
		n := copyPiece(dst, src[:min(len(src), copyPieceBytes)])
		dst, src = dst[n:], src[n:]
	}
}

//go:noinline
func copyPiece(dst, src []byte) int { return copy(dst, src) }
