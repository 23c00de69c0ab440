package shm

import (
	"context"
	"errors"
	"sync"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// Engine is one rank's side of the group.
type Engine struct {
	g     *group
	rank  int
	board board

	// What follows belongs to the goroutine that is in Run.

	w           *wait.Waiter
	head        header // what the present slot begins with, or will
	step        uint64 // the step this rank is in, or was in last
	allDone     uint64 // all ranks are known to have finished reading this step
	exposedStep uint64 // the last step in which others read this rank's buffers; zero when they are known to have finished
	seq         uint64 // the running operation's number
	op          string // and its name
	slotShared  bool   // several calls share the present slot
	callOffset  int    // where in the slot the present call's fingerprint is, when they do

	largeCalls    uint64 // how many calls there were whose data did not fit into slots
	ringCall      uint64 // the number among them of the last that used this rank's ring
	ringReader    int    // and who read it
	sources       []windowSource
	peerExposures []exposure // where other processes' buffers are, for a large AllReduce

	exposures [slotsPerBoard]exposure
	from      []unsafe.Pointer // one source per rank, for a reduction
	scale     []float64        // and its factor
	acc       []byte           // partial results of a reduction
	spare     []byte           // for an AllToAll in place
	gathered  []byte           // what the root of a Reduce has of the others

	vmreadExposed bool   // others may read a buffer of this rank by the system
	unreadable    bool   // a rank could not read another's buffer: see readable
	reported      bool   // it was this rank's buffer, and that was reported
	requests      uint64 // how many requests this rank has made, and ended
	servedRequest uint64 // the request whose answer is in this rank's window; zero: none
	servedRank    int    // the rank that made it, or the last one

	endedRank int       // the first rank whose process was seen to have ended, plus one; zero: none
	endedSeen time.Time // when it was seen

	closing sync.Once
	_       [64]byte // the next Engine is another rank's
}

var _ engine.Engine = (*Engine)(nil)

// Rank is this rank's number in the group.
func (e *Engine) Rank() int { return e.rank }

// Size is the number of ranks in the group.
func (e *Engine) Size() int { return len(e.g.boards) }

// Fail ends the group.
func (e *Engine) Fail(f *engine.Failure) { _ = e.g.fail(f) }

// Failure is why the group has ended.
func (e *Engine) Failure() *engine.Failure { return e.g.cause.Load() }

// Failed is closed when the group has ended.
func (e *Engine) Failed() <-chan struct{} { return e.g.lot.Done() }

// Left returns the ranks of this process that have said goodbye. Between
// processes it returns none: the boards may not be there any more.
func (e *Engine) Left() (list []int) {
	if e.g.shared != nil {
		return nil
	}
	for r, b := range e.g.boards {
		if b.left().Load() != 0 {
			list = append(list, r)
		}
	}
	return list
}

// Close says goodbye to the other ranks, once: after that, between processes,
// the board is not there any more.
func (e *Engine) Close() (err error) {
	e.closing.Do(func() {
		if s := e.g.shared; s != nil {
			f := e.g.cause.Load()
			if f == nil && s.Excuse != nil {
				f = s.Excuse()
			}
			*e.board.exitReason() = engine.NewFarewell(f)
		}
		e.storeWord(e.board.left(), 1)
		if s := e.g.shared; s != nil {
			err = errors.Join(s.Messages.Close(), s.OnClose())
		}
	})
	return err
}

// Run carries out calls, small neighbours together.
func (e *Engine) Run(ctx context.Context, seq uint64, calls []engine.Call) error {
	e.prefetchSlot(calls[0].Src.Bytes())
	e.seq, e.op = seq, calls[0].Op()
	e.w.Begin(ctx, e.g.opt.Timeout)
	err := e.run(ctx, calls)
	e.stopReading()
	if err != nil {
		err = e.endFailed(ctx, err)
	}
	e.w.End()
	return err
}

func (e *Engine) run(ctx context.Context, calls []engine.Call) error {
	if e.g.lot.Stopped() {
		return wait.ErrStopped
	}
	if err := ctx.Err(); err != nil {
		return e.failureOf(ctx, err, e.op, e.seq, func() engine.Facts { return engine.Facts{Wait: engine.Wait{Phase: engine.NotBegun}} })
	}
	for {
		c := &calls[0]
		n := e.callsPerSlot(calls)
		var err error
		switch {
		case n > 1, n == 1 && oneHop(c.Verb):
			err = e.small(calls[:n])
		case n == 1:
			err = e.pull(c)
		case e.g.shared != nil:
			n, err = 1, e.runWindows(c)
		case c.Verb == engine.AllReduce:
			n, err = 1, e.allReduceParts(c)
		default:
			n, err = 1, e.pull(c)
		}
		if err != nil {
			return err
		}
		if calls = calls[n:]; len(calls) == 0 {
			return e.awaitReaders()
		}
		e.op = calls[0].Op()
	}
}

// begin returns the slot for the next step, once every rank has finished
// reading what it held before.
func (e *Engine) beginStep() (*header, error) {
	e.step++
	if e.step > slotsPerBoard && e.allDone < e.step-slotsPerBoard {
		if err := e.awaitDone(e.step - slotsPerBoard); err != nil {
			return nil, err
		}
	}
	return e.board.slot(e.step), nil
}

// beginCall is begin for a slot that speaks of one call.
func (e *Engine) beginCall(c *engine.Call) (*header, error) {
	h, err := e.beginStep()
	if err != nil {
		return nil, err
	}
	c.PutSig(&e.head.sig)
	if e.head.sig.Name != 0 {
		c.PutLabel(labelAt(h.at(headerBytes)))
	}
	return h, nil
}

// post makes the slot visible to the others, and does not wait until it is.
func (e *Engine) publishDeferred(h *header) {
	h.put(&e.head, e.step)
	e.w.DeferWake(&h.step)
}

// publish makes the slot visible to the others.
func (e *Engine) publish(h *header) {
	e.publishDeferred(h)
	e.w.Flush()
}

// finish says that this rank has read all it needs of the present step.
func (e *Engine) storeDone() { e.w.StoreAndWake(e.board.done(), e.step) }

// compares reports whether this rank must look at ranks that a call does not make
// it wait for: whoever posts last finds the first step in which two disagree, before
// anybody goes on to the next. Of two ranks, the one that waits has compared already.
func (e *Engine) mustCompare(c *engine.Call) bool {
	v := c.Verb.Info()
	if !v.Rooted || len(e.g.boards) > 2 {
		return v.Rooted
	}
	return (e.rank == c.Root) == (v.Source.Ranks == engine.RootOnly)
}

// finishCall is finish for a call that some ranks may have carried out without
// waiting for all others. Of two that posted at once, neither may have seen the
// other.
func (e *Engine) finishCall(c *engine.Call) error {
	if e.mustCompare(c) {
		e.w.Flush()
		if err := e.compareArrived(); err != nil {
			return err
		}
	}
	e.storeDone()
	return nil
}

// await waits for rank r's slot of the present step, and checks that r is in
// the same operation.
func (e *Engine) awaitSlot(r int) (*header, error) {
	b := e.g.boards[r]
	h := b.slot(e.step)
	ok, err := e.w.AtLeast(&h.step, e.step, b.left())
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, e.rankLeft(r, e.op, e.seq)
	}
	if h.n > int64(len(h.tail))/8 {
		prefetchData(h)
	}
	if h.sig != e.head.sig {
		return nil, e.mismatch(e.board.slot(e.step).call(), r, h.call())
	}
	return h, nil
}

// compare checks the ranks that have arrived already. Of two ranks that
// disagree, the one that publishes last sees it, even if neither waits for the
// other.
func (e *Engine) compareArrived() error {
	for r, b := range e.g.boards {
		if h := b.slot(e.step); r != e.rank && h.step.Load() == e.step && h.sig != e.head.sig {
			return e.mismatch(e.board.slot(e.step).call(), r, h.call())
		}
	}
	return nil
}

// awaitDone waits until every rank has finished reading step.
func (e *Engine) awaitDone(step uint64) error {
	for r, b := range e.g.boards {
		if r == e.rank {
			continue
		}
		ok, err := e.w.AtLeast(b.done(), step, b.left())
		if err != nil {
			return err
		}
		if !ok {
			return e.rankLeft(r, e.op, e.seq)
		}
	}
	e.allDone = max(e.allDone, step)
	return nil
}

// settleReaders waits until nobody reads this rank's buffers any more.
func (e *Engine) awaitReaders() error {
	if e.exposedStep == 0 {
		return nil
	}
	if err := e.awaitDone(e.exposedStep); err != nil {
		return err
	}
	e.clearExposures()
	return nil
}

// settle turns what ended an operation into the cause of the group's end, and
// returns when no other rank reads this rank's buffers any more.
func (e *Engine) endFailed(ctx context.Context, err error) error {
	if e.g.shared != nil {
		// Another process may be stopped for good: it is not waited for, but
		// finds out that what it reads is not what it was. See intact.
		e.board.withdrawn().Store(1)
	}
	f := e.g.fail(e.failureOf(ctx, err, e.op, e.seq, e.missing))
	if e.g.shared == nil {
		for _, b := range e.g.boards {
			e.w.WaitWhileEqual(b.reading(), 1)
		}
	}
	e.clearExposures()
	return f
}

// failureOf makes a cause of what ended an operation; where returns what it waited
// for.
func (e *Engine) failureOf(ctx context.Context, err error, op string, seq uint64, where func() engine.Facts) *engine.Failure {
	if known := (*engine.Failure)(nil); errors.As(err, &known) {
		return known
	}
	if errors.Is(err, wait.ErrStopped) {
		return e.g.cause.Load()
	}
	f := &engine.Failure{Op: op, Seq: seq, Rank: e.rank, Facts: where()}
	f.Interrupt(ctx, err, e.g.opt.Timeout)
	return f
}

// missing returns the ranks that this one waited for, with the last calls of the first
// ones.
func (e *Engine) missing() engine.Facts {
	w := engine.Wait{Phase: engine.Arriving}
	var busy []int
	for r, b := range e.g.boards {
		switch {
		case r == e.rank:
		case b.slot(e.step).step.Load() < e.step:
			w.Ranks = append(w.Ranks, r)
		case b.done().Load() < e.step:
			busy = append(busy, r)
		}
	}
	if len(w.Ranks) == 0 && len(busy) > 0 {
		return engine.Facts{Wait: engine.Wait{Phase: engine.Finishing, Ranks: busy}}
	}
	const most = 4
	for _, r := range w.Ranks[:min(len(w.Ranks), most)] {
		last := engine.Side{Rank: r}
		if h := e.g.boards[r].last(); h != nil {
			last.Call = h.call()
		}
		w.Last = append(w.Last, last)
	}
	return engine.Facts{Wait: w}
}

func (e *Engine) mismatch(mine engine.CallInfo, r int, theirs engine.CallInfo) error {
	return e.differ(engine.Facts{
		Event: engine.CallsDiffer, Sides: []engine.Side{{Rank: e.rank, Call: mine}, {Rank: r, Call: theirs}},
	})
}

// differ is a failure because ranks do not do the same.
func (e *Engine) differ(facts engine.Facts) *engine.Failure {
	return &engine.Failure{Kind: engine.ErrMismatch, Op: e.op, Seq: e.seq, Rank: e.rank, Facts: facts}
}

// lost is a failure because a rank was lost.
func (e *Engine) lost(r int, how engine.Loss, err error) *engine.Failure {
	return &engine.Failure{
		Kind: engine.ErrRankLost, Op: e.op, Seq: e.seq, Rank: e.rank, Lost: []int{r}, Err: err,
		Facts: engine.Facts{Event: engine.RanksLost, Loss: how},
	}
}

func (e *Engine) rankLeft(r int, op string, seq uint64) error {
	if e.g.shared != nil {
		why := *e.g.boards[r].exitReason()
		if f := why.Failure(len(e.g.boards), e.g.shared.OnFail != nil); f != nil {
			return f
		}
	}
	return &engine.Failure{
		Kind: engine.ErrRankLost, Op: op, Seq: seq, Rank: e.rank, Lost: []int{r}, Left: true,
		Facts: engine.Facts{Event: engine.RanksLost, Loss: engine.Closed},
	}
}
