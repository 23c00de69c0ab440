package shm

import (
	"context"
	"errors"
	"sync"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/p2p"
	"github.com/tutti-go/tutti/internal/transport/shmem"
	"github.com/tutti-go/tutti/internal/wait"
)

// Engine is one rank's part in a group.
type Engine struct {
	g     *group
	rank  int
	board board

	messages *p2p.Messages
	lane     *shmem.Lane // of messages; nil in one process

	// The fields from here to closing belong to the goroutine that is in Run.

	w           *wait.Waiter
	head        header // header of the present slot, prepared here and copied to the board by header.put
	step        uint64 // the current step, or the last one if no call runs
	allDone     uint64 // all ranks are known to have finished reading up to this step
	exposedStep uint64 // last step in which other ranks may read this rank's buffers; zero when all have finished
	openStep    uint64 // last step in which this rank waited for no other rank; zero: all ranks are known to have made a later call
	seq         uint64 // sequence number of the running operation
	op          string // name of the running call, for errors
	slotShared  bool   // several calls share the present slot
	callOffset  int    // offset in bytes, in the slot, of the current call's fingerprint; valid while slotShared

	largeCalls    uint64         // number of calls so far whose data did not fit into slots
	ringCall      uint64         // value of largeCalls in the last call that used this rank's ring
	ringReader    int            // rank that reads the ring in that call, or allRanks
	sources       []windowSource // sources of the current call, in order; see windowSource
	peerExposures []exposure     // buffers of all ranks for a large AllReduce between processes, by rank

	exposures     [slotsPerBoard]exposure // buffers that other ranks may read, by step modulo slotsPerBoard; in one process the other ranks read it
	from          []unsafe.Pointer        // address of each rank's source for combine, by rank
	scale         []float64               // factor of each rank's source, by rank
	acc           []byte                  // accumulator of combineBlocks; nil until it is needed
	inPlaceCopy   []byte                  // copy of the source of an AllToAll or ExScan in place
	vmreadScratch []byte                  // scratch memory of the root of a Reduce for the sources of other processes

	vmreadExposed bool   // other ranks may read a buffer of this rank with ReadProcess
	unreadable    bool   // ReadProcess failed for some rank of the group; see readable
	reported      bool   // OnUnreadable was called for this rank's buffers
	requests      uint64 // number of this rank's last request; see request.word
	servedRequest uint64 // word of the request whose answer is in this rank's window; zero: none
	servedRank    int    // rank that made the last answered request

	endedRank int       // 1 + the first rank whose process was seen to have ended; zero: none
	endedSeen time.Time // when checkProcesses saw that

	closing sync.Once // Close runs once
	_       [64]byte  // Engines of one process are adjacent in memory; this keeps them on separate cache lines.
}

var _ engine.Engine = (*Engine)(nil)

// Rank returns this rank's number in the group.
func (e *Engine) Rank() int { return e.rank }

// Size returns the number of ranks in the group.
func (e *Engine) Size() int { return len(e.g.boards) }

// Fail ends the group with the cause f, unless it has one. See engine.Engine.
func (e *Engine) Fail(f *engine.Failure) { _ = e.g.fail(f) }

// Failure returns the cause of the group's failure, or nil.
func (e *Engine) Failure() *engine.Failure { return e.g.cause.Load() }

// Failed is closed when the group has failed.
func (e *Engine) Failed() <-chan struct{} { return e.g.parking.Done() }

// Left returns the ranks of this process that have closed their engine. Between
// processes it returns nil, because the boards may already be unmapped.
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

// Close announces to the other ranks that this rank makes no more calls. Only the
// first call has an effect: between processes the board may be unmapped after it.
func (e *Engine) Close() (err error) {
	e.closing.Do(func() {
		if s := e.g.shared; s != nil {
			f := e.g.cause.Load()
			if f == nil && s.Excuse != nil {
				f = s.Excuse()
			}
			*e.board.exitReason() = engine.NewExitReason(f)
		}
		e.storeWord(e.board.left(), 1)
		if s := e.g.shared; s != nil {
			e.lane.Close()
			err = s.OnClose()
		}
	})
	return err
}

// Run carries out calls in order. It combines consecutive small calls into one
// step. When an operation fails, is cancelled or times out, Run fails the whole
// group and returns the cause; see endFailed.
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

// run carries out the calls in steps. A step is one call, or several small calls
// whose data fits into one slot. All ranks select the same path for a call, because
// the choice follows from the fingerprints and the options. After an error the
// remaining calls are not run.
func (e *Engine) run(ctx context.Context, calls []engine.Call) error {
	if e.g.parking.Stopped() {
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
			err = e.runSmall(calls[:n])
		case n == 1:
			err = e.runPull(c)
		case c.Verb.Info().Prefix != engine.NoPrefix:
			n, err = 1, e.scanLarge(c)
		case e.g.shared != nil:
			n, err = 1, e.runWindows(c)
		case c.Verb == engine.AllReduce:
			n, err = 1, e.allReduceParts(c)
		default:
			n, err = 1, e.runPull(c)
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

// beginStep returns the slot for the next step. It first waits until every rank has
// finished reading the slot's previous content.
func (e *Engine) beginStep() (*header, error) {
	e.step++
	if e.step > slotsPerBoard && e.allDone < e.step-slotsPerBoard {
		if err := e.awaitDone(e.step - slotsPerBoard); err != nil {
			return nil, err
		}
	}
	return e.board.slot(e.step), nil
}

// beginCall is beginStep for a slot that holds one call. It puts the call's
// fingerprint into e.head.
func (e *Engine) beginCall(c *engine.Call) (*header, error) {
	h, err := e.beginStep()
	if err != nil {
		return nil, err
	}
	c.PutFingerprint(&e.head.sig)
	if e.head.sig.Name != 0 {
		c.PutLabel(labelAt(h.at(headerBytes)))
	}
	return h, nil
}

// publishDeferred makes the slot visible to the other ranks and defers the wakeup
// of sleeping ranks to the next Flush, store or wait.
func (e *Engine) publishDeferred(h *header) {
	h.put(&e.head, e.step)
	e.w.DeferWake(&h.step)
}

// publish makes the slot visible and wakes the ranks that wait for it.
func (e *Engine) publish(h *header) {
	e.publishDeferred(h)
	e.w.Flush()
}

// storeDone announces that this rank has read all it needs of the current step.
func (e *Engine) storeDone() { e.w.StoreAndWake(e.board.done(), e.step) }

// mustCompare reports whether this rank must compare fingerprints with ranks that
// the call does not make it wait for. Without that, a mismatch in a rooted verb
// or a Scan could pass unnoticed. The rank that publishes last finds the mismatch before any
// rank continues with the next step. In a group of two, the rank that waits
// in a rooted verb compares anyway.
func (e *Engine) mustCompare(c *engine.Call) bool {
	v := c.Verb.Info()
	if !v.Rooted || len(e.g.boards) > 2 {
		return v.Rooted || v.Prefix != engine.NoPrefix
	}
	return c.AwaitsNoRank(e.rank)
}

// finishCall is storeDone for a call that some ranks may carry out without waiting
// for all others. When two ranks publish at the same time, each may have loaded the
// other's slot too early. The second comparison, after Flush, cannot miss it on
// both.
func (e *Engine) finishCall(c *engine.Call) error {
	if e.mustCompare(c) {
		e.w.Flush()
		if err := e.compareArrived(); err != nil {
			return err
		}
	}
	switch {
	case c.Verb.Synchronizes():
		e.openStep = 0
	case c.AwaitsNoRank(e.rank):
		e.openStep = e.step
	}
	e.storeDone()
	return nil
}

// awaitSlot waits for rank r's slot of the current step and checks that r runs the
// same operation.
func (e *Engine) awaitSlot(r int) (*header, error) {
	b := e.g.boards[r]
	h := b.slot(e.step)
	ok, err := e.w.AtLeast(&h.step, e.step, b.left())
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, e.rankLeft([]int{r}, e.op, e.seq)
	}
	if h.n > int64(len(h.tail))/8 {
		prefetchData(h)
	}
	if h.sig != e.head.sig {
		return nil, e.slotsDiffer(r, h)
	}
	return h, nil
}

// compareArrived compares fingerprints with the ranks that have already published
// this step. Of two ranks that disagree, the one that publishes last sees the
// mismatch, even if neither waits for the other.
func (e *Engine) compareArrived() error {
	for r, b := range e.g.boards {
		if h := b.slot(e.step); r != e.rank && h.step.Load() == e.step && h.sig != e.head.sig {
			return e.slotsDiffer(r, h)
		}
	}
	return nil
}

// awaitDone waits until every rank has finished reading step. It returns an error
// if a rank leaves before that, the group fails, or the context ends.
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
			return e.rankLeft([]int{r}, e.op, e.seq)
		}
	}
	e.allDone = max(e.allDone, step)
	return nil
}

// awaitReaders waits until no rank reads this rank's buffers any more.
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

// endFailed makes err the cause of the group's failure, unless there is one, and
// returns the cause. In one process it returns when no other rank reads this rank's
// buffers. Between processes it does not wait, because another process may be
// stopped forever. It marks the buffers as withdrawn instead.
func (e *Engine) endFailed(ctx context.Context, err error) error {
	if e.g.shared != nil {
		// Readers load withdrawn after their reads and discard what they read; see
		// checkNotWithdrawn. The store comes before the failure, so the cause
		// cannot overtake it.
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

// failureOf turns err into a cause. where returns, for a timeout or a cancellation,
// what the operation waited for.
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

// missing returns, for an error, the ranks that have not arrived or not finished,
// with the last calls of the first ones.
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

// slotsDiffer is mismatch for this rank's slot of the current step and rank r's slot h.
func (e *Engine) slotsDiffer(r int, h *header) error {
	return e.mismatch(e.board.slot(e.step).call(), r, h.call())
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

// rankLeft is a failure because ranks have closed the group.
func (e *Engine) rankLeft(ranks []int, op string, seq uint64) error {
	if e.g.shared != nil {
		why := *e.g.boards[ranks[0]].exitReason()
		if f := why.Failure(len(e.g.boards), e.g.shared.OnFail != nil); f != nil {
			return f
		}
	}
	return &engine.Failure{
		Kind: engine.ErrRankLost, Op: op, Seq: seq, Rank: e.rank, Lost: ranks, Left: true,
		Facts: engine.Facts{Event: engine.RanksLost, Loss: engine.Closed},
	}
}
