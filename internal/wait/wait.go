// Package wait is how a rank waits for words that other ranks write.
//
// A waiting rank first spins, because the word usually changes within a
// microsecond; then it yields to other goroutines; then it parks, so that a
// rank whose peers compute for seconds costs nothing. It always comes back:
// when the word has the value, when the group is stopped, when the operation's
// context ends, or when the operation's timeout has passed.
//
// Algorithms block nowhere else. They contain no goroutine, no select and no
// clock of their own, so that a simulator can run them by replacing this
// package's slow path alone.
package wait

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// The reasons, other than success, for which a wait ends. The error of a
// context is returned as it is.
var (
	ErrStopped = errors.New("wait: the group was stopped")
	ErrTimeout = errors.New("wait: the operation's timeout has passed")
)

const (
	// turns is how often a condition is looked at between two looks at the
	// context, the clock and the stop flag.
	pollsPerCheck = 64
	// spinFor and yieldFor are how long a wait spins, and then yields, before
	// it goes to the next, cheaper and slower, way of waiting. Spinning is
	// short: the system may have put the one that is waited for on the same
	// processor, where it runs only when this one gives way. Parking and waking
	// costs some ten microseconds, so a wait that is a little longer than an
	// operation is still worth yielding through.
	spinFor  = 5 * time.Microsecond
	yieldFor = 500 * time.Microsecond
)

// A Cond is what is waited for. Ready may only load atomic values: a parked
// waiter's condition is evaluated by the goroutine that wakes it.
type Cond interface {
	// Ready reports whether the wait is over.
	Ready() bool
}

// A Lot is where the waiters of one group park, and where they are stopped.
// It is safe for concurrent use and must not be copied.
type ParkingLot struct {
	parked       atomic.Int32
	stopped      atomic.Bool
	once         sync.Once
	stop         chan struct{}
	spin         time.Duration
	maxSleep     time.Duration    // between processes: the longest sleep on a word
	neverYield   bool             // between processes: waiters do not give way, but sleep
	sleeping     *atomic.Uint64   // between processes: how many waiters of this one sleep
	peerSleeping []*atomic.Uint64 // and the other processes' counts
	scheduler    Scheduler        // nil: the runtime
	mu           sync.Mutex
	waiters      []*Waiter
}

// NewLot returns a lot for a group in which up to ranks waiters of this
// process wait for one another.
func NewParkingLot(ranks int) *ParkingLot {
	l := &ParkingLot{stop: make(chan struct{})}
	// A waiter that spins with no processor left for the one it waits for
	// only delays it.
	if ranks <= runtime.GOMAXPROCS(0) {
		l.spin = spinFor
	}
	return l
}

// Wake wakes the parked waiters whose condition has come true. It is called
// after every store to a word that somebody may wait for, and costs one load
// when nobody is parked. The word itself matters only between processes.
func (l *ParkingLot) Wake(word *atomic.Uint64) {
	if l.parked.Load() != 0 {
		l.wake()
	}
	if l.peerSleeping != nil {
		l.wakePeers(word)
	}
}

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

// Stop ends all present and future waits with ErrStopped, except those whose
// condition holds already. It may be called more than once; when it returns,
// Done is closed.
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

// A Waiter waits on behalf of one activity: one operation after another, one
// wait at a time. It is not safe for concurrent use.
type Waiter struct {
	lot          *ParkingLot
	ctx          context.Context
	timeout      time.Duration // zero or less: none
	began        time.Time     // when this operation first had to wait
	firstWait    *FirstWait    // and where that is noted; nil: nowhere
	word         wordCond
	deferred     *atomic.Uint64 // stored, but nobody has been woken yet
	fence        atomic.Uint64
	cond         Cond // what a parked waiter waits for; guarded by lot.mu
	token        chan struct{}
	timer        *time.Timer
	parkAtOnce   bool
	whileWaiting func() (bool, error)  // nil: nothing; see Serve
	checkPeers   func(time.Time) error // nil: nothing; see Look
	peersChecked time.Time             // when look was last called
	_            [64]byte              // the next waiter belongs to another rank
}

// NewWaiter returns a waiter that parks in lot.
func NewWaiter(lot *ParkingLot) *Waiter {
	return &Waiter{lot: lot, ctx: context.Background(), token: make(chan struct{}, 1)}
}

// Note has the waiter note in m when operations begin to wait. It is called
// before the first of them.
func (w *Waiter) RecordFirstWait(m *FirstWait) { w.firstWait = m }

// Serve has f called again and again while a wait lasts for more than a moment. It does
// what others need of this waiter's owner before they can go on, and reports whether there
// was something to do; its error ends the wait. It is called before the first operation.
func (w *Waiter) WhileWaiting(f func() (bool, error)) { w.whileWaiting = f }

// Begin starts an operation: the waits that follow end when ctx does, or when
// together they have lasted for timeout (if it is positive).
func (w *Waiter) Begin(ctx context.Context, timeout time.Duration) {
	w.ctx, w.timeout, w.began, w.parkAtOnce = ctx, timeout, time.Time{}, false
}

// Patient says that what the operation waits for takes long: its waits park at once.
func (w *Waiter) ParkAtOnce() { w.parkAtOnce = true }

// End lets go of the operation's context.
func (w *Waiter) End() {
	w.Flush()
	w.ctx = context.Background()
}

// wordCond waits until a word has reached a value, or until its writer has
// left for good.
type wordCond struct {
	word, left *atomic.Uint64
	least      uint64
}

func (c *wordCond) Ready() bool {
	return c.word.Load() >= c.least || (c.left != nil && c.left.Load() != 0)
}

// AtLeast waits until word has reached least. It reports false when the word
// has not, because gone is no longer zero: the writer said goodbye. A nil gone
// is never looked at.
func (w *Waiter) AtLeast(word *atomic.Uint64, least uint64, left *atomic.Uint64) (bool, error) {
	// Most waits end here, within a microsecond, without a look at anything
	// else: whoever looks at the clock sees the word change a little late.
	polls := pollsPerCheck
	if w.lot.spin > 0 {
		polls = 16 * pollsPerCheck
	} else if w.lot.peerSleeping != nil {
		polls = 1
	}
	for range polls {
		if word.Load() >= least {
			return true, nil
		}
	}
	w.word = wordCond{word, left, least}
	var peer *wordCond
	if w.lot.peerSleeping != nil {
		peer = &w.word
		if w.lot.spin == 0 && w.yieldToPeers(peer) {
			return word.Load() >= least, nil
		}
	}
	if err := w.wait(&w.word, peer); err != nil {
		return false, err
	}
	// The writer says goodbye after its last word.
	return word.Load() >= least, nil
}

// For waits until c is ready.
func (w *Waiter) For(c Cond) error { return w.wait(c, nil) }

// wait waits until c is ready. If c is a word of another process, it is passed
// a second time as that: then other processes are given way to, not goroutines,
// and the waiter sleeps on the word in place of parking.
func (w *Waiter) wait(c Cond, peer *wordCond) error {
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
			// What is waited for may have come after the last look, and those who
			// saw it have gone on and ended the group in their next operation.
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
			if busy { // there is likely more to do soon
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
			w.sleep(peer)
		default:
			w.park(c, now)
		}
	}
}

// giveWay lets others run: other processes, for a word of theirs; goroutines,
// if there are fewer processors than ranks in this process; and otherwise
// threads that the system keeps from running. The other kind gets a turn now and
// then. Looking for a goroutine can wake a thread of the runtime, which then
// takes a processor from a process that has work: between processes it is done
// as seldom as the garbage collector and the others can bear.
func (w *Waiter) yieldCPU(turn int, peer *wordCond) {
	threads, other := w.lot.spin > 0, turn%8 == 0
	if peer != nil {
		w.yieldToPeers(peer)
		threads, other = true, turn%2 == 1
	}
	if other != threads {
		yield()
	} else {
		runtime.Gosched()
	}
}

// Check returns why the operation must stop waiting, if it must, and the time.
// For calls it often enough; so must everything else that waits on behalf of
// an operation, such as a transport.
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
	return now, nil
}

// While waits as long as word has the value v, whatever else happens. It is
// for words that their writer changes without waiting for anybody.
func (w *Waiter) WaitWhileEqual(word *atomic.Uint64, v uint64) {
	for word.Load() == v {
		runtime.Gosched()
	}
}

// park sleeps until something may have changed; For finds out what.
func (w *Waiter) park(c Cond, now time.Time) {
	select {
	case <-w.token: // left over from an earlier wait
	default:
	}
	l := w.lot
	l.mu.Lock()
	w.cond = c
	l.waiters = append(l.waiters, w)
	l.parked.Add(1)
	l.mu.Unlock()

	// A store that happened before the waiter was listed woke nobody.
	if !c.Ready() {
		var expired <-chan time.Time
		if w.timeout > 0 {
			left := w.timeout - now.Sub(w.began)
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
