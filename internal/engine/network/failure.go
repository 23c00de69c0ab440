package network

import (
	"context"
	"errors"
	"fmt"
	"strings"

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

// explain turns err into a cause. where says, for a timeout or a cancellation, what
// the operation waited for.
func (e *Engine) explain(ctx context.Context, err error, op string, seq uint64, where func() string) *engine.Failure {
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
		f.Reason = fmt.Sprintf("the connection to rank %d is gone: %v", lost.Peer, lost.Err)
		if errors.Is(err, transport.ErrClosed) {
			f.Left = true
			f.Reason = fmt.Sprintf("rank %d has closed the communicator and takes no part", lost.Peer)
		}
	case errors.As(err, &damaged):
		f.Kind, f.Err = engine.ErrCorrupt, err
		f.Reason = fmt.Sprintf("what rank %d sent to rank %d, from %s, has another checksum than it was sent with; "+
			"look at the network between them and at the memory of their hosts", damaged.Peer, e.rank, damaged.Addr)
	case errors.Is(err, wait.ErrTimeout), errors.Is(err, context.DeadlineExceeded),
		ctx.Err() != nil && errors.Is(err, ctx.Err()):
		f.Interrupt(ctx, err, e.opt.Timeout, where())
	default:
		f.Kind, f.Err = engine.ErrAborted, err
		f.Reason = fmt.Sprintf("the transport has failed: %v", err)
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
	w := engine.Farewell(bye.Why[:len(engine.Farewell{})])
	return w.Failure(e.size, e.opt.OnFail != nil)
}

// missingText says, for an error, which ranks this rank was waiting for, and which
// ranks have sent nothing in the current call.
func (e *Engine) missingText() string {
	var b strings.Builder
	switch {
	case e.step == 0 || e.to == noRank && e.from == noRank:
		b.WriteString("it had not begun")
	case e.from == noRank || e.from == e.to:
		fmt.Fprintf(&b, "it was waiting for rank %d", e.to)
	case e.to == noRank:
		fmt.Fprintf(&b, "it was waiting for rank %d", e.from)
	default:
		fmt.Fprintf(&b, "it was waiting for rank %d or rank %d", e.from, e.to)
	}
	l := &e.calls
	l.mu.Lock()
	defer l.mu.Unlock()
	var unseen []int
	for r, h := range l.heard {
		if r != e.rank && e.lastStep[r] < e.step && h.step < e.step {
			unseen = append(unseen, r)
		}
	}
	if len(unseen) == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "; in this call nothing was heard of %s", engine.Ranks(unseen))
	const most = 4
	sep := " ("
	for _, r := range unseen[:min(len(unseen), most)] {
		if h := l.heard[r]; h.step > 0 {
			fmt.Fprintf(&b, "%srank %d was last heard of in %s", sep, r, h.call.describe())
			sep = ", "
		}
	}
	if sep == ", " {
		b.WriteByte(')')
	}
	return b.String()
}

// disagree returns the failure for ranks that run different calls.
func (e *Engine) disagree(reason string) *engine.Failure {
	return &engine.Failure{Kind: engine.ErrMismatch, Op: e.op, Seq: e.seq, Rank: e.rank, Reason: reason}
}

// wrongCount returns the failure for a transfer whose size, in bytes, differs from
// the expected size. Only an uneven operation can fail so, because the fingerprint
// covers all other counts.
func (e *Engine) wrongCount(r, want, sent int) error {
	return e.disagree(fmt.Sprintf("rank %d expects %d elements from rank %d, which has %d for it; "+
		"the counts of an uneven operation must agree in pairs", e.rank, want/e.elem, r, sent/e.elem))
}
