package shm

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// Options are what a group can be made with. The zero value is right.
type Options struct {
	// Timeout bounds each operation. Zero or less: no bound.
	Timeout time.Duration
	// Small is the largest data, in bytes, that goes through a slot.
	// Zero: 8 KiB; between processes, which have no other way of one hop, 32 KiB
	// if they are few. Tests make it small to reach the other ways cheaply.
	Small int
	// Ring is the size, in bytes, of what processes pass large data through.
	// Zero: 1.5 MiB, which is three windows of 512 KiB.
	Ring int
	// Piece is the size, in bytes, of the pieces in which large data is
	// reduced and fetched. Zero: 128 KiB.
	Piece int
	// Service is the most bytes that a rank copies for another at a time where the
	// system refuses to. Zero: 64 KiB, which is also the most.
	Service int
	// Peek is the least data, in bytes, of one process for another that the
	// system copies from one to the other. Zero: 16 KiB, because a call of the
	// system costs as much as the copy of some of them.
	VMReadMin int
}

func (o *Options) fill() {
	if o.Small <= 0 {
		o.Small = 8 << 10
	}
	if o.Ring <= 0 {
		o.Ring = ringBytes
	}
	if o.Piece <= 0 {
		o.Piece = 128 << 10
	}
	if o.VMReadMin <= 0 {
		o.VMReadMin = 16 << 10
	}
}

// service is Service, or what it is when that is not set.
func (o *Options) service() int {
	if o.Service <= 0 || o.Service > serviceBytes {
		return serviceBytes
	}
	return o.Service
}

// group is what the ranks of one process share.
type group struct {
	opt        Options
	lot        *wait.ParkingLot
	boards     []board
	rings      []ring  // between processes
	shared     *Shared // between processes
	vmreadPair bool    // they are two, can read each other's memory and have a core each
	// Memory of Alloc, between processes. The list is replaced, not changed.
	regions atomic.Pointer[[]Region]
	ranks   []*Engine // the other side of each board; a rank's buffers are reached through it
	cause   engine.Cause

	mu          sync.Mutex
	pending     map[pendingGroupKey]*pendingGroup
	queues      map[queueKey]*messageQueue
	idleWaiters []*wait.Waiter // for messages

	services []serviceArea // where each rank answers requests, between processes; see serve.go
}

// subKey names a group that is being made: the operation that decided it, and
// its first member.
type pendingGroupKey struct {
	seq   uint64
	first int
}

// sub is a new group and how many of its members have not yet come for it.
type pendingGroup struct {
	g       *group
	missing int
}

// NewLocal returns the engines of n ranks in this process.
func NewLocal(n int, opt Options) []*Engine {
	opt.fill()
	return newGroup(n, opt).ranks
}

func newGroup(n int, opt Options) *group {
	g := &group{
		opt:     opt,
		lot:     wait.NewParkingLot(n),
		boards:  make([]board, n),
		ranks:   make([]*Engine, n),
		pending: make(map[pendingGroupKey]*pendingGroup),
		queues:  make(map[queueKey]*messageQueue),
	}
	for r := range g.ranks {
		g.boards[r] = newBoard(opt.Small)
		g.ranks[r] = &Engine{
			g: g, rank: r, board: g.boards[r], w: wait.NewWaiter(g.lot),
			// No less than a line, or two ranks would write the same one.
			from: make([]unsafe.Pointer, n, max(n, lineBytes/8)), scale: make([]float64, n, max(n, lineBytes/8)),
		}
	}
	return g
}

// fail ends the group, and returns the cause that came first. When it returns,
// the group is stopped, whoever stopped it.
func (g *group) fail(f *engine.Failure) *engine.Failure {
	s := g.shared
	if s == nil {
		return g.cause.Take(f, nil, g.lot.Stop)
	}
	return g.cause.Take(f, s.OnFail, func() {
		g.lot.Stop()
		s.Messages.Fail(g.cause.Load())
	})
}

// join returns this process's one group for the members that seq decided on.
func (g *group) join(seq uint64, members []int) *group {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := pendingGroupKey{seq, members[0]}
	s := g.pending[key]
	if s == nil {
		s = &pendingGroup{newGroup(len(members), g.opt), len(members)}
		g.pending[key] = s
	}
	if s.missing--; s.missing == 0 {
		delete(g.pending, key)
	}
	return s.g
}

// Sub returns this rank's side of a group of some of the ranks.
func (e *Engine) Sub(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
	if s := e.g.shared; s != nil {
		return s.Sub(ctx, seq, members)
	}
	i := slices.Index(members, e.rank)
	if i < 0 {
		return nil, engine.ErrInvalid
	}
	return engine.Form(ctx, e, members, func(context.Context) (engine.Engine, error) {
		return e.g.join(seq, members).ranks[i], nil
	})
}

// Alloc returns memory that all ranks see: in one process, any memory.
func (e *Engine) Alloc(ctx context.Context, seq uint64, bytes int) (*engine.Region, error) {
	if s := e.g.shared; s != nil {
		return s.Alloc(ctx, seq, bytes)
	}
	return engine.NewRegion(bytes), nil
}

// SameHost says that all ranks share this one.
func (e *Engine) SameHost() []int { return make([]int, len(e.g.boards)) }
