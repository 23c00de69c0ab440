package tutti

import (
	"sync"
	"sync/atomic"

	"github.com/tutti-go/tutti/internal/engine"
	recorder "github.com/tutti-go/tutti/internal/flight"
	"github.com/tutti-go/tutti/internal/membership"
	"github.com/tutti-go/tutti/internal/report"
	"github.com/tutti-go/tutti/internal/wait"
)

// A Comm is one rank's membership in a group of ranks, numbered from 0.
//
// All ranks make the same calls in the same order; Send and Recv stand outside
// that order. The methods may be called from many goroutines, but then it is
// the caller's duty that the ranks' calls start in one order: another order is
// ErrMismatch, but operations that look alike can be told apart only by
// Batch.Named. Comms are independent of each other.
//
// A blocking method returns when this rank's part is over: its results are
// there, and its buffers are its own again. After an error the content of a
// destination is undefined, and all later calls return that same error.
type Comm struct {
	e          engine.Engine
	device     engine.DeviceEngine // e, if it has a device
	member     *membership.Membership
	rank, size int

	turn     atomic.Uint64  // see queue.go
	call     [1]engine.Call // the blocking call that is running
	finished atomic.Uint64  // number of the last queued operation that succeeded
	dead     atomic.Bool    // a queued operation failed, and no other will run
	launched atomic.Uint64  // number of the last operation in a stream's order that was launched
	left     atomic.Bool    // operations were left behind in the driver; see leaveBehind
	failedAt atomic.Uint64  // number of the first operation that failed
	flying   atomic.Int64   // flights that have not landed, and what else Close waits for
	shut     atomic.Bool    // Close was called
	err      atomic.Pointer[Error]

	verifier *verifier // nil: nothing is verified

	log     *recorder.Log               // what it did last
	reports *report.Watch               // nil: nothing is reported
	driver  atomic.Pointer[driverWatch] // nil: the Comm has no device, or has had no operation
	copies  sync.Pool                   // of calls, for the device engine to look at

	lot       *wait.ParkingLot // where this rank's goroutines wait for its own operations
	drain     func()           // runQueue, bound once
	collector func()           // collect, bound once

	mu         sync.Mutex
	queue      fifo            // operations started and not begun, in order
	last       <-chan struct{} // the Done channel of the operation queued last
	given      []given         // operations that the device has, in order
	giving     bool            // a goroutine launches operations on the device
	idle       bool            // the queue's goroutine waits, and has no task
	gifts      []*task         // those
	launches   []engine.Launch // and what the engine is told of them
	joined     int             // how many of them, the last, it tells of with the next
	low        int             // how many of them there may be when the queue goes on
	collecting bool            // a goroutine waits for them
	ending     []given         // the first of them, while it asks whether they are over
	signs      []uint64        // of those that follow
	tempos     [16]tempo       // by their signs; see tempo.go
	succeeded  map[uint64]bool // signs of operations that have
	wanted     []uint64        // operations that are waited for
	bell       wait.Wakeup     // ends the pause of who waits for the device
	progress   sync.Cond       // one of them is over, or another operation is queued
	handed     sync.Cond       // another operation was given to the device; the collector waits for it
	sent       uint64          // number of the last flight
	posted     uint64          // and of the last message, as the log counts them
	tasks      []*task         // for reuse, as are the next two
	flights    []*flight
	waits      []*workWait
	_          [64]byte // the next Comm may be another rank's
}

// newComm returns the Comm of a membership, whose failure r reports.
func newComm(m *membership.Membership, r *report.Reporter) *Comm {
	e := m.Engine()
	c := &Comm{e: e, member: m, rank: e.Rank(), size: e.Size(), lot: wait.NewParkingLot(unknown), log: recorder.New()}
	engine.MarkWaits(e, c.log.FirstWait())
	c.device, _ = e.(engine.DeviceEngine)
	if h, ok := e.(engine.Hosted); ok {
		c.lot = wait.NewScheduledParkingLot(h.Host())
	}
	c.drain, c.collector = c.runQueue, c.collect
	c.progress.L, c.handed.L = &c.mu, &c.mu
	if m.Verify() && c.size > 1 {
		c.verifier = &verifier{sums: make([]uint64, c.size)}
	}
	c.reports = r.Watch((*reported)(c))
	return c
}

// unknown is more waiters than there are processors: those who wait for an
// operation leave the processor to those who carry it out.
const unknown = 1 << 30

// Rank returns this rank's number.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.size }

// Done returns a channel that is closed when the Comm is poisoned.
func (c *Comm) Done() <-chan struct{} { return c.e.Failed() }

// Err returns why the Comm is poisoned, that it is closed, or nil.
func (c *Comm) Err() error {
	if err := c.refusal(""); err != nil {
		c.kept()
		return err
	}
	return nil
}

// Abort poisons the Comm on all ranks, at once, with a cause that may be nil.
// It does nothing if the Comm is poisoned or closed already; it does end what a
// Close waits for.
func (c *Comm) Abort(why error) {
	if c.turn.Load()&closed != 0 && (*calm)(c).Ready() {
		return
	}
	facts := engine.Facts{Event: engine.AbortCalled}
	if why != nil {
		facts.Text = why.Error()
	}
	c.e.Fail(&engine.Failure{Kind: engine.ErrAborted, Rank: c.rank, Err: why, Facts: facts})
}

// Close ends this rank's membership, after the operations that it has started
// are over. Other ranks' calls that still need this rank fail with
// ErrRankLost. Close may be called more than once, and on a nil Comm.
//
// In a job of processes the last Close says goodbye to the other ranks. It waits
// for those that answer to know, not for their Close: a few milliseconds where all
// ranks run, at most 3 s whatever they do, and 8 s with a device.
func (c *Comm) Close() error {
	if c == nil {
		return nil
	}
	c.shut.Store(true)
	c.seal()
	w := wait.NewWaiter(c.lot)
	if err := w.For((*calm)(c)); err != nil {
		return err
	}
	c.release()
	return c.e.Close()
}

// seal lets no more operations be started. Who holds the lock and has found it
// open can still start one.
func (c *Comm) seal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn.Or(closed)
}

// calm waits until nothing is under way.
type calm Comm

func (c *calm) Ready() bool {
	return (c.turn.Load()&running == 0 || c.left.Load()) && c.flying.Load() == 0
}

// refusal says why no operation can be started. Who returns it to the caller
// calls kept before, without c.mu, which a dump needs.
func (c *Comm) refusal(op string) *Error {
	if f := c.e.Failure(); f != nil {
		return c.poison(f)
	}
	if c.turn.Load()&closed != 0 {
		return &Error{Op: op, Rank: c.rank, Cause: errOver}
	}
	return nil
}

// failure is the error of a Comm that is poisoned, when that has been told and
// kept. c.mu is not held.
func (c *Comm) failure(f *engine.Failure) *Error {
	c.kept()
	return c.poison(f)
}

// poison is the one error by which this Comm reports that it is poisoned.
func (c *Comm) poison(f *engine.Failure) *Error {
	if err := c.err.Load(); err != nil {
		return err
	}
	c.err.CompareAndSwap(nil, publicError(f, c.rank))
	return c.err.Load()
}

// refuse is the error for arguments that are wrong.
func (c *Comm) refuse(op string, err error) error {
	return &Error{Op: op, Rank: c.rank, Cause: err}
}
