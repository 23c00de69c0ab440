package membership

import (
	"context"
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/internal/agree"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/job"
	"github.com/tutti-go/tutti/store"
)

// A Successor is a decision on the next generation, which this rank has not formed yet. The
// caller calls Form once; it closes the connection to the store.
type Successor struct {
	m        *Membership
	store    store.Store
	close    func() error
	decision *agree.Decision
}

// Shrink decides with the ranks that run on the next generation. completed is the number of
// the last operation that this rank has completed; none is under way. It must be the same
// when Shrink is called again after an error.
func (m *Membership) Shrink(ctx context.Context, completed uint64) (*Successor, error) {
	return m.decide(ctx, func(s store.Store) (*agree.Decision, error) {
		return agree.Settle(ctx, agree.On(s), agree.Question{
			Key: m.name(), Self: m.engine.Rank(), Size: m.engine.Size(), Value: completed, Tickets: m.tickets,
			Look: func() ([]int, bool) { return m.lost(), false }, Timeout: m.cfg.ShrinkTimeout,
		})
	})
}

// decide opens the store and makes a Successor of the decision that ask returns.
func (m *Membership) decide(ctx context.Context, ask func(store.Store) (*agree.Decision, error)) (*Successor, error) {
	s, closeStore, err := m.factory.open(ctx)
	if err != nil {
		return nil, err
	}
	d, err := ask(s)
	if err != nil {
		_ = closeStore()
		return nil, err
	}
	m.decided.Store(true)
	return &Successor{m, s, closeStore, d}, nil
}

// Completed returns the number of the last operation that all ranks of the next generation
// have completed. It is the same on all ranks.
func (s *Successor) Completed() uint64 { return s.decision.Value }

// Form makes the engine of the next generation, after the one of this generation is closed.
// If some ranks exit meanwhile, the others decide again, so that the result may be a later
// generation. The error is an *Error or one of Config.Attach.
func (s *Successor) Form(ctx context.Context) (*Membership, error) {
	defer func() { _ = s.close() }()
	rank := s.decision.Rank(s.m.engine.Rank())
	if rank < 0 {
		return nil, excluded(s.decision)
	}
	return s.m.form(ctx, s.store, s.decision, rank, s.m.engine)
}

// maxForm bounds the number of successive generations that cannot be formed.
const maxForm = 16

// form forms the generation after m that was decided, as one of its ranks. If that fails, a
// rank has exited meanwhile, and the ranks that are left decide on the generation after it.
// They do not wait again for ranks that are known to be missing.
func (m *Membership) form(ctx context.Context, s store.Store, d *agree.Decision, rank int, before engine.Engine) (*Membership, error) {
	for range maxForm {
		m = m.next(d.Size(), d.Tickets)
		err := m.enter(ctx, s, rank, before)
		switch {
		case err == nil:
			return m, nil
		case final(err):
			return nil, err
		case ctx.Err() != nil:
			return nil, Undecided(ctx, err)
		}
		// A newcomer whose Config differs from that of the other ranks must leave, not they.
		var lost []int
		if differ := (*job.OptionError)(nil); errors.As(err, &differ) {
			if differ.Ranks[1] == rank {
				return nil, &Error{Kind: engine.ErrMismatch, Reason: err.Error(), Err: err}
			}
			lost = differ.Ranks[1:]
		}
		m.cfg.Logger.Warn("tutti: the new Comm could not be formed; the ranks that are left decide again", "generation", m.name(), "reason", err)
		size, absent := d.Size(), new(engine.AbsentError)
		errors.As(err, &absent)
		d, err = agree.Settle(ctx, agree.On(s), agree.Question{
			Key: m.name(), Self: rank, Size: size, Tickets: m.tickets, Absent: absent.Ranks, Timeout: m.cfg.ShrinkTimeout,
			Look: func() ([]int, bool) { return lost, false },
		})
		if err != nil {
			return nil, Undecided(ctx, err)
		}
		if rank = d.Rank(rank); rank < 0 {
			return nil, excluded(d)
		}
	}
	return nil, Undecided(ctx, fmt.Errorf("%d successive Comms could not be formed", maxForm))
}

// enter makes the engine of this generation, within Config.ShrinkTimeout.
func (m *Membership) enter(ctx context.Context, s store.Store, rank int, before engine.Engine) error {
	ctx, cancel := m.within(ctx, m.cfg.ShrinkTimeout)
	defer cancel()
	e, roster, err := m.factory.form(ctx, s, m.name(), rank, len(m.ids))
	if err != nil {
		return err
	}
	m.engine, m.roster = e, roster
	return m.AttachDevice(before)
}
