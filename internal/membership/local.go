package membership

import (
	"context"
	"errors"
	"sync"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/internal/jobstore"
	"github.com/tutti-go/tutti/store"
)

// Local returns the memberships of n ranks that are goroutines of this process, by rank.
// Their engines have no device yet; see AttachDevice.
func Local(n int, cfg *Config) []*Membership {
	f := newLocalFactory(cfg)
	list := make([]*Membership, n)
	for r, e := range shm.NewLocal(n, f.opt) {
		list[r] = &Membership{cfg: cfg, engine: e, factory: f, ids: count(n), lineage: jobstore.World}
	}
	return list
}

// A localFactory makes the engines of goroutines. Its store is in memory.
type localFactory struct {
	opt    shm.Options
	mu     sync.Mutex
	memory *store.Memory            // nil until open is called; guarded by mu
	groups map[string]*pendingGroup // by generation; guarded by mu
}

// A pendingGroup holds the engines of a generation until all its ranks have called form.
type pendingGroup struct {
	engines []*shm.Engine // by rank; nil: form has returned it; guarded by localFactory.mu
	missing int           // ranks that have not called form; guarded by localFactory.mu
}

func newLocalFactory(cfg *Config) *localFactory {
	return &localFactory{opt: shm.Options{Timeout: cfg.Timeout}}
}

func (f *localFactory) open(context.Context) (store.Store, func() error, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.memory == nil {
		f.memory = store.NewMemory(store.Limits{})
	}
	return f.memory, func() error { return nil }, nil
}

// form returns a rank's engine of a generation. The first call makes the engines of all
// ranks. It does not wait for the other ranks. A second call of a rank fails.
func (f *localFactory) form(_ context.Context, _ store.Store, generation string, rank, size int) (engine.Engine, engine.Roster, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.groups[generation]
	if g == nil {
		g = &pendingGroup{shm.NewLocal(size, f.opt), size}
		if f.groups == nil {
			f.groups = make(map[string]*pendingGroup)
		}
		f.groups[generation] = g
	}
	if rank >= len(g.engines) || g.engines[rank] == nil {
		return nil, nil, errors.New("this rank has joined the new Comm already")
	}
	e := g.engines[rank]
	g.engines[rank] = nil
	if g.missing--; g.missing == 0 {
		delete(f.groups, generation)
	}
	return e, nil, nil
}
