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

// wakePeers wakes other processes' waiters that sleep on a word of this process.
func (l *ParkingLot) wakePeers(word *atomic.Uint64) {
	for _, n := range l.peerSleeping {
		if n.Load() != 0 {
			futexWake(word)
			return
		}
	}
}

// sleep sleeps until the word changes, but at most maxSleep, because the context and the stop flag
// are checked between two sleeps.
func (w *Waiter) sleep(c *wordCond) {
	w.lot.sleeping.Add(1)
	// The writer stores and then loads the count. This waiter increments the count and then loads
	// the word. At least one of the two sees the other's store, so no wake-up is lost.
	if seen := c.word.Load(); seen < c.least && (c.left == nil || c.left.Load() == 0) {
		futexWait(c.word, uint32(seen), w.lot.maxSleep)
	}
	w.lot.sleeping.Add(^uint64(0))
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
