package membership

import (
	"context"
	"errors"
	"fmt"

	"github.com/tutti-go/tutti/internal/agree"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/store"
)

// Grow decides on the next generation, with up to n new processes. If wait is true, rank 0
// waits until n processes have taken a ticket. completed is the number of the last operation
// before, which all ranks have completed. Rank 0 decides; the other ranks read the decision.
func (m *Membership) Grow(ctx context.Context, completed uint64, n int, wait bool) (*Successor, error) {
	// Rank 0 may exit or fail before it decides.
	deciding, cancel := context.WithCancel(ctx)
	defer cancel()
	defer engine.AfterFailure(m.engine, cancel)()
	return m.decide(ctx, func(s store.Store) (*agree.Decision, error) {
		if m.engine.Rank() != 0 {
			return agree.Learn(deciding, agree.On(s), m.name())
		}
		d, err := m.admit(deciding, s, n, wait)
		if err != nil {
			return nil, err
		}
		d.Value = completed
		return agree.Propose(deciding, agree.On(s), m.name(), d)
	})
}

// admit returns rank 0's proposal: all ranks, and up to n new processes. With wait it waits
// for n processes, and fails if ctx ends first.
func (m *Membership) admit(ctx context.Context, s store.Store, n int, wait bool) (*agree.Decision, error) {
	d := &agree.Decision{Members: count(m.engine.Size()), Tickets: m.tickets}
	for len(d.Late) < n {
		holder, err := ticketHolder(ctx, s, d.Tickets+1, wait)
		if err != nil {
			return nil, fmt.Errorf("%d of %d new processes have called Join with Config.Late (TUTTI_LATE=1); start the others, or pass a smaller number: %w", len(d.Late), n, err)
		}
		if holder == "" {
			break // a process has withdrawn meanwhile
		}
		d.Tickets++
		if holder != jobstore.Withdrawn {
			d.Late = append(d.Late, d.Tickets)
		}
	}
	return d, nil
}

// Waiting returns the number of processes that wait for admission. It reads the store.
func (m *Membership) Waiting(ctx context.Context) (n int64, err error) {
	s, closeStore, err := m.factory.open(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	for t := m.tickets + 1; ; t++ {
		switch holder, err := ticketHolder(ctx, s, t, false); {
		case err != nil || holder == "":
			return n, err
		case holder != jobstore.Withdrawn:
			n++
		}
	}
}
