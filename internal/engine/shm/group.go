package shm

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/transport/mem"
	"github.com/tutti-go/tutti/internal/wait"
)

// Options configure a group. The zero value selects the defaults.
type Options struct {
	// Timeout bounds each operation. Zero or less: no bound.
	Timeout time.Duration
	// Small is the largest data, in bytes, that goes through a slot. Zero: 8 KiB in
	// one process. Between processes, zero means 128 KiB divided by the number of
	// ranks, at least 4 KiB and at most 32 KiB. Tests set it low to reach the other
	// paths cheaply.
	Small int
	// Ring is the size, in bytes, of the ring through which processes pass large
	// data. Zero: 1.5 MiB, which is three windows of 512 KiB.
	Ring int
	// Piece is the size, in bytes, of the pieces in which large data is reduced and
	// fetched in one process. Zero: 128 KiB.
	Piece int
	// Service is the largest answer, in bytes, to one request for a buffer that
	// ReadProcess cannot read. Zero: 64 KiB, which is also the maximum.
	Service int
	// VMReadMin is the smallest data, in bytes, that ReadProcess copies. Zero: 16
	// KiB. Below that, the system call costs more than the second copy through a
	// ring.
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

// service returns Service, or its default.
func (o *Options) service() int {
	if o.Service <= 0 || o.Service > serviceBytes {
		return serviceBytes
	}
	return o.Service
}

// group is the state that the ranks of one process share. Between processes each
// process has its own group with one rank.
type group struct {
	opt        Options
	parking    *wait.ParkingLot // all waiters of this process; stopped when the group fails
	boards     []board          // by rank
	rings      []ring           // by rank; between processes only
	shared     *Shared          // nil in one process
	vmreadPair bool             // two processes that can read each other's memory and have a core each
	// Alloc's regions, between processes only. Writers hold mu and replace the
	// slice; readers load it without a lock.
	regions atomic.Pointer[[]Region]
	// regionReads is held for reading while a message is copied from a region. DropRegion waits for it.
	regionReads sync.RWMutex
	ranks       []*Engine    // engines of all ranks; in one process only
	cause       engine.Cause // first failure of the group

	mu      sync.Mutex
	pending map[pendingGroupKey]*pendingGroup // in one process only; guarded by mu

	services []serviceArea // where each rank answers requests, by rank; between processes only, see serve.go
}

// pendingGroupKey identifies a group that is being made: the operation that decided
// on it, and its first member.
type pendingGroupKey struct {
	seq   uint64
	first int
}

// pendingGroup is a new group and the number of members that have not yet called
// Sub.
type pendingGroup struct {
	g       *group
	missing int // members that have not called Sub yet
}

// NewLocal returns the engines of n ranks in this process, by rank.
func NewLocal(n int, opt Options) []*Engine {
	opt.fill()
	return newGroup(n, opt).ranks
}

// newGroup returns a group of n ranks in this process, with boards in memory of
// this process.
func newGroup(n int, opt Options) *group {
	g := &group{
		opt:     opt,
		parking: wait.NewParkingLot(n),
		boards:  make([]board, n),
		ranks:   make([]*Engine, n),
		pending: make(map[pendingGroupKey]*pendingGroup),
	}
	lanes := mem.NewLanes(mem.LaneOptions{
		Ranks:      n,
		ParkingLot: func(int) *wait.ParkingLot { return g.parking },
		Gone:       func(_, peer int) *atomic.Uint64 { return g.boards[peer].left() },
	})
	for r := range g.ranks {
		g.boards[r] = newBoard(opt.Small)
		g.ranks[r] = &Engine{
			g: g, rank: r, board: g.boards[r], w: wait.NewWaiter(g.parking),
			// At least a line of capacity, so that no two ranks write to the same
			// cache line.
			from: make([]unsafe.Pointer, n, max(n, lineBytes/8)), scale: make([]float64, n, max(n, lineBytes/8)),
		}
		g.ranks[r].messages = g.ranks[r].newMessages(lanes[r])
	}
	return g
}

// fail ends the group with the cause f and returns the first cause, which may be an
// earlier one. When fail returns, the waiters of the group are stopped.
func (g *group) fail(f *engine.Failure) *engine.Failure {
	s := g.shared
	if s == nil {
		return g.cause.Take(f, nil, g.parking.Stop)
	}
	return g.cause.Take(f, s.OnFail, g.parking.Stop)
}

// subgroup returns the group for members that operation seq decided on. The first
// member creates it; the last member removes it from pending.
func (g *group) subgroup(seq uint64, members []int) *group {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := pendingGroupKey{seq, members[0]}
	p := g.pending[key]
	if p == nil {
		p = &pendingGroup{newGroup(len(members), g.opt), len(members)}
		g.pending[key] = p
	}
	if p.missing--; p.missing == 0 {
		delete(g.pending, key)
	}
	return p.g
}

// Sub returns this rank's engine in a group of some of the ranks. See
// engine.Engine.
func (e *Engine) Sub(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
	if s := e.g.shared; s != nil {
		return s.Sub(ctx, seq, members)
	}
	i := slices.Index(members, e.rank)
	if i < 0 {
		return nil, engine.ErrInvalid
	}
	return engine.Form(ctx, e, members, func(context.Context) (engine.Engine, error) {
		return e.g.subgroup(seq, members).ranks[i], nil
	})
}

// Alloc returns memory that all ranks can access. In one process any memory is.
func (e *Engine) Alloc(ctx context.Context, seq uint64, bytes int) (*engine.Region, error) {
	if s := e.g.shared; s != nil {
		return s.Alloc(ctx, seq, bytes)
	}
	return engine.NewRegion(bytes), nil
}

// SameHost says that all ranks share one host.
func (e *Engine) SameHost() []int { return make([]int, len(e.g.boards)) }

// Describe returns how the engine moves data.
func (e *Engine) Describe() engine.Description {
	d := engine.Description{Engine: "shm", Transport: "memory", Device: engine.NoDevice}
	if e.g.shared != nil {
		d.Transport = "shared memory"
	}
	return d
}
