package membership

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"github.com/tutti-go/tutti/internal/agree"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/store"
)

// A ticket is a new process's request for admission. Rank 0 admits the processes in the
// order of their tickets.
type ticket struct {
	number int64
	holder string // the value of the ticket's key; in no other ticket
}

// takeTicket takes the first free ticket. One store request takes it, so that a process that
// exits here either has a ticket or leaves no trace. After an error the ticket may be taken.
func takeTicket(ctx context.Context, s store.Store, process string) (ticket, error) {
	host, _ := os.Hostname() // for people
	t := ticket{1, jobstore.Holder(process, fmt.Sprintf("process %d on %s", os.Getpid(), host), rand.Text())}
	for ; ; t.number++ {
		holder, err := s.CompareAndSet(ctx, jobstore.Ticket(t.number), nil, []byte(t.holder))
		if err != nil || string(holder) == t.holder {
			return t, err
		}
	}
}

// withdraw releases a ticket if this process has it, so that rank 0 does not wait for this
// process. If the process was admitted meanwhile, the other ranks notice its absence.
func (m *Membership) withdraw(s store.Store, t ticket) {
	ctx, cancel := m.within(context.Background(), queryTimeout)
	defer cancel()
	_, _ = s.CompareAndSet(ctx, jobstore.Ticket(t.number), []byte(t.holder), []byte(jobstore.Withdrawn))
}

// ticketHolder returns the holder of a ticket. If the ticket is free it waits, or returns ""
// if wait is false.
func ticketHolder(ctx context.Context, s store.Store, number int64, wait bool) (holder string, err error) {
	key := jobstore.Ticket(number)
	if !wait {
		if taken, err := s.Check(ctx, key); err != nil || !taken {
			return "", err
		}
	}
	text, err := s.Get(ctx, key)
	return string(text), err
}

// joinLate connects to the store and joins a running job.
func joinLate(ctx context.Context, cfg *Config) (*Membership, error) {
	client, s, err := newProcessFactory(cfg).dial(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return newMembership(cfg).awaitGrow(ctx, s)
}

// awaitGrow joins a running job when its ranks call Grow. It takes a ticket and reads the
// decisions of the lineage jobstore.World from the first one on, until one admits the ticket.
// It runs on the goroutine of the caller of Join. m is in no generation yet.
//
// A process that stops waiting withdraws its ticket, so that rank 0 does not wait for it. After
// a decision about the ticket there is nothing to withdraw: rank 0 does not read it again, and
// if the process was admitted and does not come, the other ranks notice its absence.
func (m *Membership) awaitGrow(ctx context.Context, s store.Store) (*Membership, error) {
	t, err := takeTicket(ctx, s, m.process)
	if err != nil {
		m.withdraw(s, t) // the store's answer may be lost
		return nil, err
	}
	for {
		d, err := agree.Learn(ctx, agree.On(s), m.name())
		if err != nil {
			m.withdraw(s, t)
			if ctx.Err() == nil { // the store has failed, or its value is damaged
				return nil, fmt.Errorf("waiting until the ranks of the job call Grow: %w", err)
			}
			return nil, fmt.Errorf("the ranks of the job have not called Grow: %w", err)
		}
		if rank := d.Newcomer(t.number); rank >= 0 {
			return m.enterLate(ctx, s, d, rank)
		}
		if d.Tickets >= t.number { // rank 0 found the ticket withdrawn, by the launcher
			return nil, &Error{Kind: engine.ErrExcluded, Reason: "the job grew without this process"}
		}
		m = m.next(d.Size(), d.Tickets)
	}
}

// enterLate forms the generation that has admitted this process, and notifies the launcher.
// Config.Timeout bounds it, as it bounds Grow on the other ranks.
func (m *Membership) enterLate(ctx context.Context, s store.Store, d *agree.Decision, rank int) (*Membership, error) {
	ctx, cancel := m.Bound(ctx)
	defer cancel()
	next, err := m.form(ctx, s, d, rank, nil)
	if err != nil {
		return nil, err
	}
	if m.process == "" {
		return next, nil
	}
	text := fmt.Appendf(nil, "rank %d of %d", next.engine.Rank(), next.engine.Size())
	if err := s.Set(ctx, jobstore.Admitted(m.process), text); err != nil {
		return nil, joinError(ctx, errors.Join(err, next.engine.Close()))
	}
	return next, nil
}
