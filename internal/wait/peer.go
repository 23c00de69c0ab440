package wait

import (
	"sync/atomic"
	"time"
)

// yieldPeerFor is how long a wait for another process yields its CPU repeatedly before it sleeps.
// Going to sleep and waking takes some thirty microseconds.
const yieldPeerFor = 300 * time.Microsecond

// NewPeerParkingLot returns a ParkingLot for waiting on words in memory that other processes write.
// sleeping counts this process's sleeping waiters; the other processes read it. peerSleeping are
// their counts. oversubscribed reports whether there are fewer CPUs than processes.
func NewPeerParkingLot(oversubscribed bool, sleeping *atomic.Uint64, peerSleeping []*atomic.Uint64) *ParkingLot {
	l := &ParkingLot{stop: make(chan struct{}), sleeping: sleeping, peerSleeping: peerSleeping, maxSleep: sleepSlice}
	if !oversubscribed {
		l.spin = spinFor
	} else if n := time.Duration(len(peerSleeping) / manyPeers); n > 1 {
		l.maxSleep = min(n*sleepSlice, maxSleepSlice)
	}
	return l
}

// spinPeerFor is how long a wait spins if the awaited process cannot be on the same CPU. It covers
// small operations, because yielding delays the detection of a change.
const spinPeerFor = 50 * time.Microsecond

// SpinLonger makes waits spin longer. The caller must know that no two of the processes share a CPU.
// SpinLonger must be called before the ParkingLot is used.
func (l *ParkingLot) SpinLonger() { l.spin = spinPeerFor }

// NeverYield makes waits spin and sleep, but not call sched_yield. It is for processes that share the
// CPUs with busy-polling threads, such as NCCL's proxy threads, if there is a CPU for every rank and
// thread. After sched_yield such a thread may run for a full time slice, which is longer than a sleep
// and a wake-up. NeverYield must be called before the ParkingLot is used.
func (l *ParkingLot) NeverYield() { l.spin, l.neverYield = spinPeerFor, true }

// yieldsPerCheck is how often the CPU is yielded between two checks of the context, the clock and
// the stop flag.
const yieldsPerCheck = 16

// yieldToPeers yields the CPU to other processes, and polls the word once after each yield. If
// there are more ranks than CPUs, the awaited rank may need this CPU, and further polls would delay
// it. It reports whether the condition is true.
func (w *Waiter) yieldToPeers(c PeerCond) bool {
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

// wakePeers wakes other processes' waiters that sleep on a word of this process.
func (l *ParkingLot) wakePeers(word *atomic.Uint64) {
	for _, n := range l.peerSleeping {
		if n.Load() != 0 {
			futexWake(word)
			return
		}
	}
}

// A PeerCond is a condition that other processes make true. The waiter does not park: it polls Ready
// and calls Sleep. No other goroutine calls the methods.
type PeerCond interface {
	Cond
	// Sleep sleeps until Ready may report true, but at most for limit, because the context and the
	// stop flag are checked between two sleeps. It may return early for any reason.
	Sleep(limit time.Duration)
}

// ForPeers waits until c is ready. The ParkingLot must be one of NewPeerParkingLot.
func (w *Waiter) ForPeers(c PeerCond) error {
	for range w.lot.firstPolls() {
		if c.Ready() {
			return nil
		}
	}
	if w.lot.spin == 0 && w.yieldToPeers(c) {
		return nil
	}
	return w.wait(c, c)
}

// Sleep sleeps until the word changes.
func (c *wordCond) Sleep(limit time.Duration) {
	c.sleeping.Add(1)
	// The writer stores and then loads the count. This waiter increments the count and then loads
	// the word. At least one of the two sees the other's store, so no wake-up is lost.
	if seen := c.word.Load(); seen < c.least && (c.left == nil || c.left.Load() == 0) {
		futexWait(c.word, uint32(seen), limit)
	}
	c.sleeping.Add(^uint64(0))
}

// Ring increments word and wakes all sleepers on it, in all processes.
func Ring(word *atomic.Uint64) {
	word.Add(1)
	futexWake(word)
}

// A Words is a list of words to sleep on. The zero Words is empty. It is reused without allocation.
type Words struct {
	words []*atomic.Uint64
	seen  []uint32
	waits []futexWaiter
}

// Reset removes all words.
func (l *Words) Reset() { l.words, l.seen = l.words[:0], l.seen[:0] }

// Add adds a word with its current value.
func (l *Words) Add(word *atomic.Uint64) {
	l.words, l.seen = append(l.words, word), append(l.seen, uint32(word.Load()))
}

// CheckPeers registers f, which a wait for another process calls after checkPeersAfter and then at
// most every checkPeersEvery. f detects that the other process has exited; its error ends the wait.
// CheckPeers must be called before the first operation.
func (w *Waiter) CheckPeers(f func(now time.Time) error) { w.checkPeers = f }

// checkPeersAfter is longer than most operations, and than the first operation of many ranks that
// start together, so that these never call f.
const (
	checkPeersAfter = 200 * time.Millisecond
	checkPeersEvery = 50 * time.Millisecond
)

// maybeCheckPeers calls checkPeers if it is due.
func (w *Waiter) maybeCheckPeers(now time.Time) error {
	if w.checkPeers == nil || now.Sub(w.began) < checkPeersAfter || now.Sub(w.peersChecked) < checkPeersEvery {
		return nil
	}
	w.peersChecked = now
	return w.checkPeers(now)
}

const (
	// sleepSlice bounds one sleep. If more than manyPeers processes share fewer CPUs, the bound
	// grows in proportion, up to maxSleepSlice. Otherwise the frequent wake-ups would take the CPUs
	// from the processes that have work.
	sleepSlice    = 5 * time.Millisecond
	maxSleepSlice = 50 * time.Millisecond
	manyPeers     = 16
)
