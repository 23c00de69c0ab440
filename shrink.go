package tutti

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tutti-go/tutti/internal/agree"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/job"
	"github.com/tutti-go/tutti/internal/wait"
	"github.com/tutti-go/tutti/store"
)

// Shrink goes on without the ranks that are lost: the others agree on who is
// left, and get a new Comm, in which they keep their order and are numbered
// anew. All of them call it; it poisons the Comm if nothing else has, so that
// those who have noticed nothing return from their operations and come too. A
// rank that is alive but does not come within Config.Patience is left behind,
// and gets ErrExcluded when it comes.
//
// done is the number of the last operation on the old Comm that all ranks of the
// new one have completed; all of them are told the same. Operations after it may
// have been completed by some.
//
// The old Comm is closed. When Shrink fails for want of the store, or because
// ctx ended, it may be called again. A job without a store cannot shrink:
// ErrUnsupported.
func (c *Comm) Shrink(ctx context.Context) (next *Comm, done uint64, err error) {
	const op = "Shrink"
	if err := c.mayDecide(ctx, op); err != nil {
		return nil, 0, err
	}
	ctx, cancel := c.home.bound(ctx)
	defer cancel()
	if err := c.freeze(ctx, op); err != nil {
		return nil, 0, err
	}
	s, closeStore, err := c.home.site.open(ctx)
	if err != nil {
		return nil, 0, c.undecided(ctx, op, err)
	}
	defer func() { _ = closeStore() }()
	d, err := agree.Settle(ctx, agree.On(s), agree.Question{
		Key: c.home.name(), Self: c.rank, Size: c.size, Value: c.completed(), Tickets: c.home.tickets,
		Look: func() ([]int, bool) { return c.lost(), false }, Patience: c.home.cfg.Patience,
	})
	if err != nil {
		return nil, 0, c.undecided(ctx, op, err)
	}
	c.retire(false)
	next, err = c.follow(ctx, op, s, d)
	return next, d.Value, err
}

// mayDecide finds out whether this Comm can have a successor.
func (c *Comm) mayDecide(ctx context.Context, op string) error {
	switch {
	case ctx == nil:
		return c.refuse(op, &cause{kind: ErrInvalid, reason: errNilContext.Error()})
	case c.shut.Load():
		return c.refuse(op, errOver)
	case c.home.site == nil:
		return c.refuse(op, &cause{
			kind:   ErrUnsupported,
			reason: "there is no store that could decide; start the job with tutti run, or with torchrun",
		})
	}
	return nil
}

// undecided is the error of a call that got no answer from the store, or could
// not make what was decided.
func (c *Comm) undecided(ctx context.Context, op string, err error) error {
	return c.refuse(op, undecided(ctx, err))
}

func undecided(ctx context.Context, err error) *cause {
	kind := ErrAborted
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = ErrTimeout
	}
	return &cause{kind: kind, reason: "the ranks could not agree: " + err.Error(), own: err}
}

// freeze ends the Comm for this rank: when it returns, nothing of it is under
// way, and nothing more will be completed.
func (c *Comm) freeze(ctx context.Context, op string) error {
	c.stopAccepting()
	if c.e.Failure() == nil && !c.retired.Load() {
		c.e.Fail(&engine.Failure{
			Kind: ErrAborted, Op: op, Rank: c.rank, Facts: engine.Facts{Event: engine.OpCalled},
		})
	}
	if err := c.settle(ctx); err != nil {
		return c.undecided(ctx, op, err)
	}
	return nil
}

// settle waits until nothing is under way.
func (c *Comm) settle(ctx context.Context) error {
	w := wait.NewWaiter(c.lot)
	w.Begin(ctx, 0)
	err := w.For((*idle)(c))
	w.End()
	if err != nil {
		return fmt.Errorf("operations that this rank has started do not end: %w", err)
	}
	return nil
}

// completed is the number of the last operation that this rank has completed.
// Nothing is under way: operations run in order, and none after one that failed.
func (c *Comm) completed() uint64 {
	if first := c.queue.failedAt.Load(); first != 0 {
		return first - 1
	}
	return c.queue.started()
}

// noteFailed notes an operation that failed.
func (c *Comm) noteFailed(seq uint64) {
	for {
		first := c.queue.failedAt.Load()
		if first != 0 && first <= seq || c.queue.failedAt.CompareAndSwap(first, seq) {
			return
		}
	}
}

// abandonTime is how long an old Comm may take to be closed.
const abandonTime = 15 * time.Second

// retire closes the Comm. The other ranks are waited for, if at all, only as
// long as they may be needed in the next.
func (c *Comm) retire(patient bool) {
	c.retired.Store(true)
	c.release()
	h := c.home
	if h.job != nil {
		if patient {
			defer time.AfterFunc(h.cfg.Patience/2, h.job.Hasten).Stop()
		} else {
			h.job.Hasten()
		}
	}
	var bad error
	over := new(atomic.Uint64)
	c.lot.Go(func() {
		bad = c.e.Close()
		over.Store(1)
		c.lot.Wake(over)
	})
	w := wait.NewWaiter(c.lot)
	w.Begin(context.Background(), abandonTime)
	if _, err := w.AtLeast(over, 1, nil); err != nil {
		h.cfg.Logger.Warn("tutti: the old Comm is abandoned: it could not be closed", "waited", abandonTime)
	} else if bad != nil {
		h.cfg.Logger.Warn("tutti: the old Comm was not closed well", "reason", bad)
	}
}

// follow makes this rank's side of what was decided.
func (c *Comm) follow(ctx context.Context, op string, s store.Store, d *agree.Decision) (*Comm, error) {
	rank := d.Rank(c.rank)
	if rank < 0 {
		return nil, c.refuse(op, excluded(d))
	}
	next, why := c.home.follow(ctx, s, d, rank, c.e)
	if why != nil {
		return nil, c.refuse(op, why)
	}
	return next, nil
}

func excluded(d *agree.Decision) *cause {
	return &cause{kind: ErrExcluded, reason: fmt.Sprintf(
		"%s of the old Comm went on without this one, which was taken for lost or came too late", engine.Ranks(d.Members))}
}

// maxForm is how many epochs in a row may fail to be formed.
const maxForm = 16

// follow forms the epoch that was decided, as its given rank. If that fails,
// somebody has died meanwhile, and those who are left agree again. Who is known
// not to have come has been waited for.
func (h *home) follow(ctx context.Context, s store.Store, d *agree.Decision, rank int, before engine.Engine) (*Comm, error) {
	for range maxForm {
		h = h.next(d.Size(), d.Tickets)
		c, err := h.form(ctx, s, rank, before)
		if err == nil {
			return c, nil
		}
		if known := (*cause)(nil); ctx.Err() != nil || errors.As(err, &known) {
			return nil, undecidedUnless(ctx, err)
		}
		// A newcomer that was not made as the others were must go, not they.
		var lost []int
		if other := (*job.DifferError)(nil); errors.As(err, &other) {
			if other.Ranks[1] == rank {
				return nil, &cause{kind: ErrMismatch, reason: err.Error(), own: err}
			}
			lost = other.Ranks[1:]
		}
		h.cfg.Logger.Warn("tutti: what was decided could not be formed; the ranks that are left decide again", "epoch", h.name(), "reason", err)
		size, absent := d.Size(), new(engine.AbsentError)
		errors.As(err, &absent)
		d, err = agree.Settle(ctx, agree.On(s), agree.Question{
			Key: h.name(), Self: rank, Size: size, Tickets: h.tickets, Absent: absent.Ranks, Patience: h.cfg.Patience,
			Look: func() ([]int, bool) { return lost, false },
		})
		if err != nil {
			return nil, undecided(ctx, err)
		}
		if rank = d.Rank(rank); rank < 0 {
			return nil, excluded(d)
		}
	}
	return nil, undecided(ctx, fmt.Errorf("%d decisions in a row could not be formed", maxForm))
}

// undecidedUnless leaves an error alone that says what happened already.
func undecidedUnless(ctx context.Context, err error) error {
	if known := (*cause)(nil); errors.As(err, &known) {
		return err
	}
	return undecided(ctx, err)
}

// form makes this home's Comm.
func (h *home) form(ctx context.Context, s store.Store, rank int, before engine.Engine) (*Comm, error) {
	ctx, cancel := h.within(ctx, h.cfg.Patience)
	defer cancel()
	e, j, err := h.site.form(ctx, s, h.name(), rank, len(h.ids))
	if err != nil {
		return nil, err
	}
	h.job = j
	if e, err = h.cfg.attach(e, before); err != nil {
		return nil, err
	}
	return newComm(e, h), nil
}
