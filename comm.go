package tutti

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	recorder "github.com/tutti-go/tutti/internal/flight"
	"github.com/tutti-go/tutti/internal/membership"
	"github.com/tutti-go/tutti/internal/report"
	"github.com/tutti-go/tutti/internal/wait"
)

// A Comm is one rank's membership in a group of ranks, numbered from 0.
//
// All ranks make the same calls in the same order. Send and Recv are not part of
// that order. The methods may be called from many goroutines, but then the
// caller must start the calls in the same order on all ranks. A different order
// is ErrMismatch, but only Batch.Named distinguishes operations that look alike.
// Comms are independent of each other.
//
// A blocking method returns when this rank's part is complete: its results are
// there, and its buffers can be used again. After an error the content of a
// destination is undefined, and all later calls return that same error.
type Comm struct {
	// Constant after newComm: e to size, and verifier to lot.

	e          engine.Engine
	device     engine.DeviceEngine // e if it has a device; otherwise nil
	member     *membership.Membership
	rank, size int

	queue     queue
	transfers transfers

	shut     atomic.Bool           // Close was called
	replaced atomic.Bool           // Shrink or Grow has returned the successor
	overlap  atomic.Bool           // a blocking call has found another operation under way
	once     sync.Once             // Close has an effect once
	err      atomic.Pointer[Error] // the error of the poisoned Comm, once a call has needed it

	verifier *verifier // nil: results are not compared

	log     *recorder.Log                        // the last operations
	reports *report.Watch                        // nil: nothing is reported
	driver  *driverWatch                         // nil: the Comm has no device
	copies  sync.Pool                            // of calls, for the device engine to check
	onWait  func(*engine.Message, time.Duration) // logWait, bound once

	lot *wait.ParkingLot // callers of this rank wait here for operations in the queue

	mu sync.Mutex // guards fields of queue and transfers; see there
	_  [64]byte   // keeps Comms of different ranks on different cache lines
}

// newComm returns the Comm of a membership. r reports the Comm when it is poisoned; r may be nil.
func newComm(m *membership.Membership, r *report.Reporter) *Comm {
	e := m.Engine()
	c := &Comm{e: e, member: m, rank: e.Rank(), size: e.Size(), lot: wait.NewParkingLot(manyWaiters), log: recorder.New()}
	engine.MarkWaits(e, c.log.FirstWait())
	c.device, _ = e.(engine.DeviceEngine)
	if h, ok := e.(engine.Hosted); ok {
		c.lot = wait.NewScheduledParkingLot(h.Host())
	}
	c.queue.drain, c.onWait = c.runQueue, c.logWait
	if m.Verify() && c.size > 1 {
		c.verifier = &verifier{sums: make([]uint64, c.size)}
	}
	if c.device != nil {
		c.watchDriver()
	}
	c.reports = r.Watch((*reported)(c))
	return c
}

// manyWaiters is more than the number of CPUs. So a goroutine that waits for an operation yields its
// CPU to the goroutines that carry the operation out.
const manyWaiters = 1 << 30

// Rank returns this rank's number.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.size }

// Seq returns the number of the operation that was started last on this Comm, or zero
// before the first. Operations are numbered from 1, the same on all ranks: the collectives,
// Barrier, Alloc, Split, Dup and Grow. A Batch is one operation. Messages and calls that are
// refused with ErrInvalid have no number. Error.Seq and the result done of Shrink are such
// numbers.
func (c *Comm) Seq() uint64 { return c.queue.started() }

// Done returns a channel that is closed when the Comm is poisoned.
func (c *Comm) Done() <-chan struct{} { return c.e.Failed() }

// Err returns why the Comm is poisoned, that it is closed, or nil.
func (c *Comm) Err() error {
	if err := c.refusal(""); err != nil {
		c.awaitReport()
		return err
	}
	return nil
}

// Abort poisons the Comm on all ranks, at once, with a cause that may be nil.
// It does nothing if the Comm is poisoned or closed already, but it ends the
// operations that a Close waits for.
func (c *Comm) Abort(why error) {
	if c.queue.turn.Load()&closed != 0 && (*idle)(c).Ready() {
		return
	}
	facts := engine.Facts{Event: engine.AbortCalled}
	if why != nil {
		facts.Text = why.Error()
	}
	c.e.Fail(&engine.Failure{Kind: engine.ErrRevoked, Rank: c.rank, Err: why, Facts: facts})
}

// Close ends this rank's membership when the operations that it has started
// are complete. Other ranks' calls that still need this rank fail with
// ErrRankLost. If the Comm is poisoned and no call on this rank has returned the
// error, Close returns it. Close may be called more than once, and on a nil Comm.
//
// A Broadcast returns on its root before the other ranks have called it. So does a
// Scan on rank 0, and any other operation on ranks that only send. If this rank's
// last operations were such, Close waits for 3 s at most until the other ranks have
// called them, and returns an error if they have called something else.
//
// In a job of processes the last Close notifies the other ranks. It waits until
// they have acknowledged, not for their Close: a few milliseconds if all ranks
// run. Ranks that do not answer delay it by at most 5 s, or 8 s with a device.
func (c *Comm) Close() (err error) {
	if c == nil {
		return nil
	}
	c.shut.Store(true)
	c.once.Do(func() { err = c.close() })
	return err
}

// settleTime bounds the wait for ranks that have not called this rank's last operations.
const settleTime = 3 * time.Second

// close is Close, once. After Shrink or Grow, which have closed the engine, the error of the old group is
// not reported.
func (c *Comm) close() error {
	// The 5 s: lingerFor of package tcp (1 s) for each of at most two meshes, lingerTime of
	// package control (1 s, rank 0 only), overlay.LeaveTime (1.5 s), and some time to run. The
	// 8 s: closeLimit of internal/engine/gpu, which contains these.
	c.stopAccepting()
	w := wait.NewWaiter(c.lot)
	if err := w.For((*idle)(c)); err != nil {
		return err
	}
	var failed error
	if !c.member.Decided() {
		ctx, cancel := context.WithTimeout(context.Background(), settleTime)
		engine.Settle(ctx, c.e)
		cancel()
		failed = c.unreported()
	}
	c.release()
	return errors.Join(failed, c.e.Close())
}

// unreported returns the error of a poisoned Comm if no call on this rank has returned it. A rank that has
// itself called Abort or Shrink knows of it.
func (c *Comm) unreported() error {
	f := c.e.Failure()
	if f == nil || c.err.Load() != nil || f.Rank == c.rank && errors.Is(f.Kind, ErrRevoked) {
		return nil
	}
	c.awaitReport()
	return closeError(f, c.rank)
}

// refusal returns the reason why no operation can be started, or nil. Before a method returns the
// error to the user, it calls awaitReport, without holding c.mu.
func (c *Comm) refusal(op string) *Error {
	if f := c.e.Failure(); f != nil {
		if op != "" && c.replaced.Load() {
			return &Error{Op: op, Rank: c.rank, Cause: errReplaced}
		}
		return c.poison(f, op, 0)
	}
	if c.queue.turn.Load()&closed != 0 {
		over := errOver
		if c.replaced.Load() {
			over = errReplaced
		}
		return &Error{Op: op, Rank: c.rank, Cause: over}
	}
	return nil
}

// failure returns the error of a poisoned Comm after the Comm is reported. op and seq are the operation of
// this rank that returns it; op may be "". c.mu must not be held.
func (c *Comm) failure(f *engine.Failure, op string, seq uint64) *Error {
	c.awaitReport()
	return c.poison(f, op, seq)
}

// poison returns the error of a poisoned Comm. It is the same value in every call. If a loss was found
// outside of operations, the error names op, the first operation of this rank that the loss has ended.
func (c *Comm) poison(f *engine.Failure, op string, seq uint64) *Error {
	if err := c.err.Load(); err != nil {
		return err
	}
	err, reason := publicError(f, c.rank)
	if c.overlap.Load() && (f.Event == engine.CallsDiffer || f.Event == engine.StepsDiffer) {
		reason.reason += "; if several goroutines make these calls, use a Comm for each (Dup)"
	}
	if f.Op == "" && f.Event == engine.RanksLost && op != "" {
		err.Op, err.Seq, err.Rank = op, seq, c.rank
	}
	c.err.CompareAndSwap(nil, err)
	return c.err.Load()
}

// refuse returns the error for wrong arguments.
func (c *Comm) refuse(op string, err error) error {
	return &Error{Op: op, Rank: c.rank, Cause: err}
}
