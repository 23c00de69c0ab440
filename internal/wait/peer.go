package wait

import (
	"sync/atomic"
	"time"
)

// yieldPeerFor is how long a wait for another process gives its processor
// away, again and again, before it sleeps. A sleep and its end cost some thirty
// microseconds.
const yieldPeerFor = 300 * time.Microsecond

// NewPeerLot returns a lot for waiting on words in memory that other processes
// write. Each process counts, in a word of its own that the others can read,
// its waiters that sleep: mine is this process's, peers are the others'. Crowded
// says that they have fewer processors than they are.
func NewPeerParkingLot(oversubscribed bool, sleeping *atomic.Uint64, peerSleeping []*atomic.Uint64) *ParkingLot {
	l := &ParkingLot{stop: make(chan struct{}), sleeping: sleeping, peerSleeping: peerSleeping, maxSleep: sleepSlice}
	if !oversubscribed {
		l.spin = spinFor
	} else if n := time.Duration(len(peerSleeping) / manyPeers); n > 1 {
		l.maxSleep = min(n*sleepSlice, maxSleepSlice)
	}
	return l
}

// spinPeerFor is how long a wait spins where nobody who is waited for can be on the
// same processor: as long as the operations take that are still small to the one
// who calls them. To give way is to be late by a part of a microsecond.
const spinPeerFor = 50 * time.Microsecond

// Apart says that no two of the processes have a processor in common. It is called
// before the lot is used.
func (l *ParkingLot) SpinLonger() { l.spin = spinPeerFor }

// Beside says that threads that never rest are beside the processes, and that there are
// processors for all: the system lets who gives way to such a thread wait for a whole
// slice of its time, which is more than it takes to sleep and to be woken. It is called
// before the lot is used.
func (l *ParkingLot) NeverYield() { l.spin, l.neverYield = spinPeerFor, true }

// cedes is how often the processor is given away between two looks at the
// context, the clock and the stop flag.
const yieldsPerCheck = 16

// cede gives the processor to other processes, and looks at the word once each
// time it comes back: where there are more ranks than processors, the one that
// is waited for may need this one, and every look before that is time lost. It
// reports whether the wait is over.
func (w *Waiter) yieldToPeers(c *wordCond) bool {
	w.Flush()
	for range yieldsPerCheck {
		yield()
		if c.Ready() {
			return true
		}
		if w.lot.Stopped() {
			break
		}
	}
	return false
}

// wakePeers wakes other processes' waiters that sleep on a word of this one.
func (l *ParkingLot) wakePeers(word *atomic.Uint64) {
	for _, n := range l.peerSleeping {
		if n.Load() != 0 {
			futexWake(word)
			return
		}
	}
}

// sleep sleeps until the word changes, but no longer than a slice: contexts
// and stops are looked at between two of them.
func (w *Waiter) sleep(c *wordCond) {
	w.lot.sleeping.Add(1)
	// The writer stores, then looks at the count; this waiter counts, then
	// looks at the word. One of the two sees the other.
	if seen := c.word.Load(); seen < c.least && (c.left == nil || c.left.Load() == 0) {
		futexWait(c.word, uint32(seen), w.lot.maxSleep)
	}
	w.lot.sleeping.Add(^uint64(0))
}

// Look has f called now and then while an operation waits for another process: first when it has
// waited for lookAfter, and then at most every lookAgain. It finds out whether that
// process has ended; its error ends the wait. It is called before the first operation.
func (w *Waiter) CheckPeers(f func(now time.Time) error) { w.checkPeers = f }

// An operation that takes less than lookAfter pays nothing for Look: most do, and so does the
// first one of many ranks that start together.
const (
	checkPeersAfter = 200 * time.Millisecond
	checkPeersEvery = 50 * time.Millisecond
)

func (w *Waiter) maybeCheckPeers(now time.Time) error {
	if w.checkPeers == nil || now.Sub(w.began) < checkPeersAfter || now.Sub(w.peersChecked) < checkPeersEvery {
		return nil
	}
	w.peersChecked = now
	return w.checkPeers(now)
}

const (
	// sleepSlice bounds one sleep. Where more than manyPeers processes share fewer processors, a sleep
	// is longer in proportion, up to maxSleepSlice: the ends of the sleeps would otherwise take
	// the processors from the processes that have work.
	sleepSlice    = 5 * time.Millisecond
	maxSleepSlice = 50 * time.Millisecond
	manyPeers     = 16
)
