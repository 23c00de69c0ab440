package membership

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
	"github.com/tutti-go/tutti/store"
)

// A simulated engine is one of package tuttitest's. The simulator has a store of its own,
// and makes the engines of later generations itself.
type simulated interface {
	Host() wait.Scheduler
	Roster() engine.Roster
	// Late reports whether this process joins a running job.
	Late() bool
	// Admitted is called when this process knows that it belongs to the next generation.
	Admitted()
	Store() store.Store
	Listen(name string, size int) (addr string)
	Enter(ctx context.Context, addr string, rank, size int) (engine.Engine, engine.Roster, error)
}

// joinSimulated returns the membership of a simulated process: in the group of all ranks, or in
// the generation that admits it.
func (m *Membership) joinSimulated(ctx context.Context, e simulated) (*Membership, error) {
	m.factory, m.host = simulatedFactory{e}, e.Host()
	if !e.Late() {
		m.roster, m.ids = e.Roster(), count(m.engine.Size())
		return m, nil
	}
	m.late = true
	next, err := m.awaitGrow(ctx, e.Store())
	if err != nil {
		return nil, joinError(ctx, err)
	}
	return next, nil
}

// A simulatedFactory makes the engines of simulated ranks.
type simulatedFactory struct{ rank simulated }

func (f simulatedFactory) open(context.Context) (store.Store, func() error, error) {
	return f.rank.Store(), func() error { return nil }, nil
}

func (f simulatedFactory) form(ctx context.Context, s store.Store, generation string, rank, size int) (engine.Engine, engine.Roster, error) {
	f.rank.Admitted()
	addr, err := exchangeAddr(ctx, s, generation, rank, func() (string, error) { return f.rank.Listen(generation, size), nil })
	if err != nil {
		return nil, nil, err
	}
	return f.rank.Enter(ctx, addr, rank, size)
}
