package network

import (
	"context"
	"errors"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// Fail ends the group. A failure that is marked as Told is known to the other
// ranks, so it is not reported to OnFail.
func (e *Engine) Fail(f *engine.Failure) { _ = e.fail(f) }

// Failure returns the cause of the group's failure, or nil.
func (e *Engine) Failure() *engine.Failure { return e.cause.Load() }

// Failed is closed when the group has failed.
func (e *Engine) Failed() <-chan struct{} { return e.opt.ParkingLot.Done() }

// fail ends the group with the cause f, unless it has one, and returns the first
// cause.
func (e *Engine) fail(f *engine.Failure) *engine.Failure {
	return e.cause.Take(f, e.opt.OnFail, e.opt.ParkingLot.Stop)
}

// explain turns err into a cause. A failure of the group in err, or left behind by the lost peer, is returned
// itself. where returns, for a timeout or a cancellation, what the operation waited for.
func (e *Engine) explain(ctx context.Context, err error, op string, seq uint64, where func() engine.Facts) *engine.Failure {
	if known := (*engine.Failure)(nil); errors.As(err, &known) {
		return known
	}
	f := &engine.Failure{Op: op, Seq: seq, Rank: e.rank}
	lost := (*transport.LostError)(nil)
	damaged := (*transport.CorruptError)(nil)
	switch {
	case errors.Is(err, wait.ErrStopped):
		return e.cause.Load()
	case errors.As(err, &lost) && e.farewell(err) != nil:
		return e.farewell(err)
	case errors.As(err, &lost):
		f.Kind, f.Lost, f.Err = engine.ErrRankLost, []int{lost.Peer}, err
		f.Facts = engine.Facts{Event: engine.RanksLost, Loss: engine.Disconnected, Text: lost.Err.Error()}
		if errors.Is(err, transport.ErrClosed) {
			f.Left = true
			f.Facts = engine.Facts{Event: engine.RanksLost, Loss: engine.Closed}
		}
	case errors.As(err, &damaged):
		f.Kind, f.Err = engine.ErrCorrupt, err
		f.Facts = engine.Facts{
			Event: engine.TransferDamaged, Sides: []engine.Side{{Rank: damaged.Peer}, {Rank: e.rank}}, Text: damaged.Addr,
		}
	case errors.Is(err, wait.ErrTimeout), errors.Is(err, context.DeadlineExceeded),
		ctx.Err() != nil && errors.Is(err, ctx.Err()):
		f.Facts = where()
		f.Interrupt(ctx, err, e.opt.Timeout)
	default:
		f.Kind, f.Err = engine.ErrAborted, err
		f.Facts = engine.Facts{Event: engine.TransportFailed, Text: err.Error()}
	}
	return f
}

// farewell returns the failure because of which another rank has left, or nil if it
// gave no reason.
func (e *Engine) farewell(err error) *engine.Failure {
	bye := (*transport.Goodbye)(nil)
	if !errors.As(err, &bye) {
		return nil
	}
	w := engine.ExitReason(bye.Why[:len(engine.ExitReason{})])
	return w.Failure(e.size, e.opt.OnFail != nil)
}

// missing returns, for an error, the ranks that this rank was waiting for, and the ranks that have sent
// nothing in the current call. The goroutine in Run calls it; the log of calls has a lock of its own.
func (e *Engine) missing() engine.Facts {
	w := engine.Wait{Phase: engine.Exchanging}
	switch {
	case e.step == 0 || e.to == noRank && e.from == noRank:
		w.Phase = engine.NotBegun
	case e.from == noRank || e.from == e.to:
		w.Ranks = []int{e.to}
	case e.to == noRank:
		w.Ranks = []int{e.from}
	default:
		w.Ranks = []int{e.from, e.to}
	}
	l := &e.calls
	l.mu.Lock()
	defer l.mu.Unlock()
	for r, h := range l.heard {
		if r != e.rank && e.lastStep[r] < e.step && h.step < e.step {
			w.Unheard = append(w.Unheard, r)
		}
	}
	const most = 4
	for _, r := range w.Unheard[:min(len(w.Unheard), most)] {
		if h := l.heard[r]; h.step > 0 {
			w.Last = append(w.Last, engine.Side{Rank: r, Call: h.call.call()})
		}
	}
	return engine.Facts{Wait: w}
}

// disagree returns the failure for two ranks that run different calls. mine and
// theirs describe this rank's side and the other's.
func (e *Engine) disagree(event engine.Event, mine, theirs engine.Side) *engine.Failure {
	mine.Rank = e.rank
	return &engine.Failure{
		Kind: engine.ErrMismatch, Op: e.op, Seq: e.seq, Rank: e.rank,
		Facts: engine.Facts{Event: event, Sides: []engine.Side{mine, theirs}},
	}
}

// wrongCount returns the failure for a transfer whose size, in bytes, differs from
// the expected size. Only an uneven operation can fail so, because the fingerprint
// covers all other counts.
func (e *Engine) wrongCount(r, want, sent int) error {
	return e.disagree(engine.CountsDiffer, engine.Side{N: int64(want / e.elem)}, engine.Side{Rank: r, N: int64(sent / e.elem)})
}
