// Package wait lets a rank wait for words that other ranks write.
//
// A waiting rank first spins, because the word usually changes within a microsecond. Then it yields
// to other goroutines. Then it parks, so that it uses no CPU while its peers compute for seconds. A
// wait always ends: when the word has the value, when the group is stopped, when the context of the
// operation ends, or when its timeout has passed.
//
// Algorithms block in this package only. They start no goroutine and use no select and no clock, so
// that a simulator can run them by replacing this package's Scheduler.
package wait

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// The errors of a wait. The error of a context is returned unchanged.
var (
	ErrStopped = errors.New("wait: the group was stopped")
	ErrTimeout = errors.New("wait: the operation's timeout has passed")
)

const (
	// pollsPerCheck is how many times a condition is polled between two checks of the context, the
	// clock and the stop flag.
	pollsPerCheck = 64
	// spinFor and yieldFor are how long a wait spins and then yields before it uses the next way of
	// waiting, which costs less CPU and is slower. spinFor is short because the system may have
	// placed the awaited rank on the same CPU, where it runs only when this rank yields. Parking
	// and waking takes some ten microseconds, so yieldFor is a little longer than an operation.
	spinFor  = 5 * time.Microsecond
	yieldFor = 500 * time.Microsecond
)

// A Cond is a condition to wait for. Ready may only load atomic values, because the goroutine that
// wakes a parked waiter calls it.
type Cond interface {
	// Ready reports whether the condition is true.
	Ready() bool
}

// A ParkingLot is where the waiters of one group park and are stopped. It is safe for concurrent
// use and must not be copied. mu guards waiters.
type ParkingLot struct {
	parked       atomic.Int32
	stopped      atomic.Bool
	once         sync.Once
	stop         chan struct{}
	spin         time.Duration
	maxSleep     time.Duration    // between processes: bounds one sleep on a word
	neverYield   bool             // between processes: waiters sleep without yielding first
	sleeping     *atomic.Uint64   // between processes: the number of this process's sleeping waiters
	peerSleeping []*atomic.Uint64 // between processes: the other processes' sleeping counts
	scheduler    Scheduler        // nil: the Go runtime
	mu           sync.Mutex
	waiters      []*Waiter
}

// NewParkingLot returns a ParkingLot for a group with the given number of ranks in this process, which
// wait for one another.
func NewParkingLot(ranks int) *ParkingLot {
	l := &ParkingLot{stop: make(chan struct{})}
	// With fewer CPUs than ranks, a spinning waiter only delays the rank that it waits for.
	if ranks <= runtime.GOMAXPROCS(0) {
		l.spin = spinFor
	}
	return l
}

// Wake wakes the parked waiters whose condition is true. It must be called after every store to a
// word that a waiter may wait for. It costs one load if no waiter is parked. word matters only
// between processes.
func (l *ParkingLot) Wake(word *atomic.Uint64) {
	l.WakeGoroutines()
	if l.peerSleeping != nil {
		l.wakePeers(word)
	}
}

// WakeGoroutines is Wake for the waiters of this process.
func (l *ParkingLot) WakeGoroutines() {
	if l.parked.Load() != 0 {
		l.wake()
	}
}

// wake wakes the parked waiters of this process whose condition is true. It runs in the goroutine
// that has stored a word, and does not wait for the waiters: a token that is already there
// suffices.
func (l *ParkingLot) wake() {
	if l.scheduler != nil {
		l.scheduler.Wake(l)
		return
	}
	l.mu.Lock()
	for _, w := range l.waiters {
		if w.cond.Ready() {
			select {
			case w.token <- struct{}{}:
			default:
			}
		}
	}
	l.mu.Unlock()
}

// Stop ends all present and future waits with ErrStopped, except waits whose condition is true.
// When it returns, Done is closed. It may be called more than once.
func (l *ParkingLot) Stop() {
	l.once.Do(func() {
		l.stopped.Store(true)
		close(l.stop)
		if l.scheduler != nil {
			l.scheduler.Wake(l)
		}
	})
}

// Stopped reports whether Stop was called.
func (l *ParkingLot) Stopped() bool { return l.stopped.Load() }

// Done is closed by Stop.
func (l *ParkingLot) Done() <-chan struct{} { return l.stop }

// A Waiter waits on behalf of a sequence of operations. It is not safe for concurrent use.
type Waiter struct {
	lot          *ParkingLot
	ctx          context.Context
	timeout      time.Duration // of the current operation; zero or less: none
	began        time.Time     // when the current operation first checked the clock; zero: it has not
	firstWait    *FirstWait    // records began; nil: not recorded
	word         wordCond
	deferred     *atomic.Uint64 // a stored word whose waiters are not woken yet; see DeferWake
	fence        atomic.Uint64
	cond         Cond // condition of the parked waiter; guarded by lot.mu
	token        chan struct{}
	timer        *time.Timer
	parkAtOnce   bool
	whileWaiting func() (bool, error)      // see WhileWaiting; nil: none
	checkPeers   func(time.Time) error     // see CheckPeers; nil: none
	peersChecked time.Time                 // when checkPeers was last called
	notice       func(time.Duration) error // see Notice; nil: none
	noticeEvery  time.Duration
	nextNotice   time.Duration // how long the operation has waited when notice is called next
	_            [64]byte      // padding: the next waiter in memory belongs to another rank
}

// NewWaiter returns a waiter that parks in lot.
func NewWaiter(lot *ParkingLot) *Waiter {
	return &Waiter{lot: lot, ctx: context.Background(), token: make(chan struct{}, 1)}
}

// RecordFirstWait makes the waiter record in m when an operation begins to wait. It must be called
// between operations. Nil: nothing is recorded.
func (w *Waiter) RecordFirstWait(m *FirstWait) { w.firstWait = m }

// WhileWaiting registers f, which a wait calls repeatedly after a moment. f does work that other
// ranks need from this rank, and reports whether there was any. An error of f ends the wait. It
// must be called before the first operation.
func (w *Waiter) WhileWaiting(f func() (bool, error)) { w.whileWaiting = f }

// Notice registers f, which is called when an operation has waited for the time every, and then
// again after each such time, with the time waited so far. An error of f ends the wait. Notice must
// be called before the first operation.
func (w *Waiter) Notice(every time.Duration, f func(waited time.Duration) error) {
	w.noticeEvery, w.notice = every, f
}

// Linger lets the current operation wait for d more, although its context has ended.
func (w *Waiter) Linger(d time.Duration) {
	now := w.lot.now()
	if w.began.IsZero() {
		w.began = now
	}
	w.ctx, w.timeout = context.Background(), now.Sub(w.began)+d
}

// Begin starts an operation. Its waits end when ctx ends, or when they have lasted for timeout in
// total, unless timeout is zero or less.
func (w *Waiter) Begin(ctx context.Context, timeout time.Duration) {
	w.ctx, w.timeout, w.began, w.parkAtOnce = ctx, timeout, time.Time{}, false
	w.nextNotice = w.noticeEvery
}

// ParkAtOnce makes the waits of the current operation park without spinning, because they will take
// long.
func (w *Waiter) ParkAtOnce() { w.parkAtOnce = true }

// End ends the operation and releases its context.
func (w *Waiter) End() {
	w.Flush()
	w.ctx = context.Background()
}

// wordCond is true when a word has reached a value, or when its writer has left.
type wordCond struct {
	word, left *atomic.Uint64
	least      uint64
	sleeping   *atomic.Uint64 // between processes: ParkingLot.sleeping
}

func (c *wordCond) Ready() bool {
	return c.word.Load() >= c.least || (c.left != nil && c.left.Load() != 0)
}

// AtLeast waits until word has reached least. It returns false without an error if left becomes
// nonzero first, which means that the writer has left. left may be nil.
func (w *Waiter) AtLeast(word *atomic.Uint64, least uint64, left *atomic.Uint64) (bool, error) {
	for range w.lot.firstPolls() {
		if word.Load() >= least {
			return true, nil
		}
	}
	w.word = wordCond{word, left, least, w.lot.sleeping}
	var peer PeerCond
	if w.lot.peerSleeping != nil {
		peer = &w.word
		if w.lot.spin == 0 && w.yieldToPeers(peer) {
			return word.Load() >= least, nil
		}
	}
	if err := w.wait(&w.word, peer); err != nil {
		return false, err
	}
	// The writer sets left after its last store to word.
	return word.Load() >= least, nil
}

// firstPolls returns the number of polls before the clock is read. Most waits end with these polls,
// within a microsecond. Reading the clock would delay the detection of the change.
func (l *ParkingLot) firstPolls() int {
	switch {
	case l.spin > 0:
		return 16 * pollsPerCheck
	case l.peerSleeping != nil:
		return 1
	}
	return pollsPerCheck
}

// For waits until c is ready.
func (w *Waiter) For(c Cond) error { return w.wait(c, nil) }

// wait waits until c is ready. peer is c if other processes make it true, and nil otherwise. With
// peer the waiter yields to other processes instead of goroutines, and calls Sleep instead of
// parking.
func (w *Waiter) wait(c Cond, peer PeerCond) error {
	w.Flush()
	if w.lot.scheduler != nil {
		return w.parkInScheduler(c)
	}
	yields := yieldFor
	if peer != nil {
		yields = yieldPeerFor
		if w.lot.neverYield {
			yields = 0
		}
	}
	var start time.Time
	for turn := 0; ; turn++ {
		for range pollsPerCheck {
			if c.Ready() {
				return nil
			}
		}
		now, err := w.Check()
		if err != nil {
			// The condition may have become true after the last poll. The ranks that saw it may
			// have begun their next operation and stopped the group there.
			if c.Ready() {
				return nil
			}
			return err
		}
		if start.IsZero() {
			start = now
		}
		if w.whileWaiting != nil {
			busy, err := w.whileWaiting()
			if err != nil {
				return err
			}
			if busy { // more work is likely soon
				start, yields = now, yieldPeerFor
			}
		}
		switch waited := now.Sub(start); {
		case w.parkAtOnce && peer == nil:
			w.park(c, now)
		case waited < w.lot.spin:
		case waited < yields:
			w.yieldCPU(turn, peer)
		case peer != nil:
			if err := w.maybeCheckPeers(now); err != nil {
				return err
			}
			peer.Sleep(w.lot.maxSleep)
		default:
			w.park(c, now)
		}
	}
}

// yieldCPU lets others run. In a wait for another process it yields to other processes. Otherwise
// it yields to goroutines if this process has fewer CPUs than ranks, and else to threads. The other
// kind gets every eighth turn. Between processes goroutines get every second turn: runtime.Gosched
// can wake a thread that takes a CPU from another process, but the garbage collector needs turns.
func (w *Waiter) yieldCPU(turn int, peer PeerCond) {
	threads, other := w.lot.spin > 0, turn%8 == 0
	if peer != nil {
		if w.yieldToPeers(peer) {
			return
		}
		threads, other = true, turn%2 == 1
	}
	if other != threads {
		yield()
	} else {
		runtime.Gosched()
	}
}

// Check returns the time, and an error if the operation must stop waiting. It is for callers that
// wait by other means, such as system calls.
func (w *Waiter) Check() (time.Time, error) {
	now := w.lot.now()
	if w.lot.stopped.Load() {
		return now, ErrStopped
	}
	if err := w.ctx.Err(); err != nil {
		return now, err
	}
	if w.began.IsZero() {
		w.began = now
		if w.firstWait != nil {
			w.firstWait.record(now)
		}
	}
	if w.timeout > 0 && now.Sub(w.began) >= w.timeout {
		return now, ErrTimeout
	}
	if w.notice != nil && now.Sub(w.began) >= w.nextNotice {
		waited := now.Sub(w.began)
		w.nextNotice = waited + w.noticeEvery
		return now, w.notice(waited)
	}
	return now, nil
}

// Stopped reports whether the group was stopped.
func (w *Waiter) Stopped() bool { return w.lot.Stopped() }

// untilCheck returns how long the operation may sleep at most before Check must be called. Zero: there is no bound.
func (w *Waiter) untilCheck(now time.Time) time.Duration {
	waited := now.Sub(w.began)
	switch {
	case w.notice != nil && (w.timeout <= 0 || w.nextNotice < w.timeout):
		return max(w.nextNotice-waited, 1)
	case w.timeout > 0:
		return max(w.timeout-waited, 1)
	}
	return 0
}

// WaitWhileEqual waits while word has the value v, regardless of stop, context and timeout. The
// writer must not wait for another rank before it changes the word.
func (w *Waiter) WaitWhileEqual(word *atomic.Uint64, v uint64) {
	for word.Load() == v {
		runtime.Gosched()
	}
}

// park sleeps until a wake-up, a stop, the end of the context, or the timeout. It returns no
// reason: the caller checks the condition and calls Check. lot.mu guards the list of waiters and
// w.cond.
func (w *Waiter) park(c Cond, now time.Time) {
	select {
	case <-w.token: // a token of an earlier wait
	default:
	}
	l := w.lot
	l.mu.Lock()
	w.cond = c
	l.waiters = append(l.waiters, w)
	l.parked.Add(1)
	l.mu.Unlock()

	// A store before the waiter was in the list has woken no waiter.
	if !c.Ready() {
		var expired <-chan time.Time
		if left := w.untilCheck(now); left > 0 {
			if w.timer == nil {
				w.timer = time.NewTimer(left)
			} else {
				w.timer.Reset(left)
			}
			expired = w.timer.C
		}
		select {
		case <-w.token:
		case <-l.stop:
		case <-w.ctx.Done():
		case <-expired:
		}
		if w.timer != nil {
			w.timer.Stop()
		}
	}

	l.mu.Lock()
	last := len(l.waiters) - 1
	for i, x := range l.waiters {
		if x == w {
			l.waiters[i] = l.waiters[last]
			break
		}
	}
	l.waiters[last] = nil
	l.waiters = l.waiters[:last]
	w.cond = nil
	l.parked.Add(-1)
	l.mu.Unlock()
}
