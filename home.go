package tutti

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/internal/launchenv"
	"github.com/tutti-go/tutti/internal/wait"
	"github.com/tutti-go/tutti/store"
)

// A home is where a Comm comes from and where its successor is decided. Comms
// that follow each other are a line, and each is an epoch of it; see
// docs/design/membership.md.
type home struct {
	cfg     Config         // filled
	site    site           // nil: nobody can decide
	job     engine.Roster  // nil: there are no processes
	host    wait.Scheduler // nil: the runtime
	teller  *teller        // nil: nobody asks
	ids     []int          // this Comm's ranks by their numbers in the job
	line    string
	epoch   int
	tickets int64 // newcomers that have been dealt with
}

// worldLine is the line of the Comm that Join returns.
const worldLine = launchenv.WorldLine

// A site is where ranks meet again: processes, or goroutines.
type site interface {
	// open returns the store that decides, and what gives it back.
	open(ctx context.Context) (store.Store, func() error, error)
	// form makes a rank's engine of the epoch of that name, when all its ranks
	// have come to do so.
	form(ctx context.Context, s store.Store, name string, rank, size int) (engine.Engine, engine.Roster, error)
}

// within is context.WithTimeout, in the host's time if there is one.
func (h *home) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if h.host != nil {
		return h.host.WithTimeout(ctx, d)
	}
	return context.WithTimeout(ctx, d)
}

// bound bounds a context by the Config's Timeout.
func (h *home) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if h.cfg.Timeout > 0 {
		return h.within(ctx, h.cfg.Timeout)
	}
	return context.WithCancel(ctx)
}

// name is the key under which the store knows the epoch.
func (h *home) name() string { return fmt.Sprintf("%s/%d", h.line, h.epoch) }

// title is what people call the Comm: the same on all its ranks.
func (h *home) title() string {
	if h.epoch == 0 {
		return h.line
	}
	return h.name()
}

// sub is the home of a group made of some of this one's ranks by operation seq.
func (h *home) sub(seq uint64, members []int) *home {
	s := *h
	s.line, s.epoch = engine.GroupName(h.title(), seq, members[0]), 0
	s.ids = make([]int, len(members))
	for i, m := range members {
		s.ids[i] = h.ids[m]
	}
	return &s
}

// next is the home of the successor, of so many ranks.
func (h *home) next(size int, tickets int64) *home {
	n := *h
	n.epoch++
	n.tickets, n.ids, n.job = tickets, count(size), nil
	return &n
}

// count is 0, 1, 2 and so on.
func count(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// lost returns the ranks of the Comm that are known to be gone.
func (c *Comm) lost() []int {
	var list []int
	if f := c.e.Failure(); f != nil {
		list = append(list, f.Lost...)
	}
	if e, ok := c.e.(interface{ Left() []int }); ok {
		list = append(list, e.Left()...)
	}
	if j := c.home.job; j != nil {
		for _, id := range append(j.Lost(), j.Left()...) {
			if r := slices.Index(c.home.ids, id); r >= 0 {
				list = append(list, r)
			}
		}
	}
	return list
}

// A hall is the site of goroutines: their arbiter is a store in memory, which
// is made when it is first needed.
type hall struct {
	opt    shm.Options
	mu     sync.Mutex
	memory *store.Memory
	groups map[string]*crew
}

// crew are the engines of a group that not all of its ranks have fetched.
type crew struct {
	engines []*shm.Engine
	missing int
}

func newLocalHome(cfg *Config, n int) *home {
	return &home{cfg: *cfg, site: &hall{opt: shm.Options{Timeout: cfg.Timeout}}, ids: count(n), line: worldLine}
}

func (h *hall) open(context.Context) (store.Store, func() error, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.memory == nil {
		h.memory = store.NewMemory(store.Limits{})
	}
	return h.memory, func() error { return nil }, nil
}

func (h *hall) form(_ context.Context, _ store.Store, name string, rank, size int) (engine.Engine, engine.Roster, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.groups[name]
	if c == nil {
		c = &crew{shm.NewLocal(size, h.opt), size}
		if h.groups == nil {
			h.groups = make(map[string]*crew)
		}
		h.groups[name] = c
	}
	if rank >= len(c.engines) || c.engines[rank] == nil {
		return nil, nil, errors.New("this rank is there already")
	}
	e := c.engines[rank]
	c.engines[rank] = nil
	if c.missing--; c.missing == 0 {
		delete(h.groups, name)
	}
	return e, nil, nil
}
