package tutti

import (
	"context"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
	"github.com/tutti-go/tutti/store"
)

// simulated is an engine of package tuttitest's, which has a store and a way to
// later epochs of its own.
type simulated interface {
	Host() wait.Scheduler
	Roster() engine.Roster
	Store() store.Store
	Listen(name string, size int) (addr string)
	Enter(ctx context.Context, addr string, rank, size int) (engine.Engine, engine.Roster, error)
}

// simulation is the site of simulated ranks.
type simulation struct{ rank simulated }

func (s simulation) open(context.Context) (store.Store, func() error, error) {
	return s.rank.Store(), func() error { return nil }, nil
}

func (s simulation) form(ctx context.Context, st store.Store, name string, rank, size int) (engine.Engine, engine.Roster, error) {
	addr, err := findFirst(ctx, st, name, rank, func() (string, error) { return s.rank.Listen(name, size), nil })
	if err != nil {
		return nil, nil, err
	}
	return s.rank.Enter(ctx, addr, rank, size)
}
