package shm

import (
	"context"
	"sync/atomic"
	"unsafe"

	"github.com/tutti-go/tutti/internal/affinity"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/wait"
)

// Shared is what a group of processes is made of.
type Shared struct {
	Options
	Rank int
	// Memory is each rank's segment, of SharedBytes: this rank's own, which it
	// writes, and the others', which it reads.
	Memory []unsafe.Pointer
	// Cores holds, for each rank, the processors that its process may use: see
	// cores.Mask. Where there are fewer than ranks, one that waits does not spin. Nil
	// means that all have this process's.
	CPUMasks [][]byte
	// Messages carries Send and Recv: an engine of the same ranks.
	Messages engine.Engine
	// Peek copies bytes at an address of another rank's process into this one's
	// memory. Nil: not all ranks can read each other's. The error ESRCH says that
	// the process has ended.
	ReadProcess func(rank int, dst unsafe.Pointer, addr uint64, bytes int) error
	// OnUnreadable, if it is not nil, is called once, on a rank whose buffer another
	// one, reader, could not read by Peek. What would be read by Peek then goes through
	// the segments.
	OnUnreadable func(reader int, reason error)
	// Ended reports whether the process of another rank has ended without leaving the group;
	// see lookout. Nil: that cannot be seen.
	Ended func(rank int) bool
	// OnFail is told of a failure that began on this rank, before the engine
	// takes it as its cause. If the owner knows of an earlier one, it calls Fail
	// with that, marked as Told. Nil: this is a part of another group, which tells
	// it of its failures, and takes its as they are.
	OnFail func(*engine.Failure)
	// Excuse, if it is not nil, says why this rank leaves the group though it is
	// well, nil if for no reason; see engine.Excuse.
	Excuse func() *engine.Failure
	// Sub and Alloc make what needs more than this group's memory.
	Sub   func(ctx context.Context, seq uint64, members []int) (engine.Engine, error)
	Alloc func(ctx context.Context, seq uint64, bytes int) (*engine.Region, error)
	// OnClose gives back what the group was made of.
	OnClose func() error
}

// ringBytes is the size of a ring: its windows should stay in a core's cache.
const ringBytes = numWindows * (512 << 10)

// SharedBytes is the size of one rank's segment in a group of so many.
func SharedBytes(ranks int, opt Options) int {
	opt.fillShared(ranks)
	return opt.serviceAt(ranks) + answersBytes(ranks) + serviceBytes
}

// serviceAt is where a rank's service begins in its segment: behind its board and its
// rings.
func (o *Options) serviceAt(ranks int) int {
	b, _ := boardBytes(o.slotDataBytes(ranks))
	return (b + o.Ring + o.Ring/ranks + numWindows*lineBytes + lineBytes - 1) / lineBytes * lineBytes
}

// fillShared is fill for processes. A slot is read by all others whole: the
// more they are, the sooner dividing the work pays.
func (o *Options) fillShared(ranks int) {
	if o.Small <= 0 {
		o.Small = min(32<<10, max(4<<10, 128<<10/ranks))
	}
	o.fill()
}

// small is the room for data in a slot: at least for one count per rank, or a
// place.
func (o *Options) slotDataBytes(ranks int) int { return max(o.Small, 8*ranks, regionBufferBytes) }

// NewShared returns this process's rank.
func NewShared(s Shared) *Engine {
	n := len(s.Memory)
	s.fillShared(n)
	g := &group{opt: s.Options, boards: make([]board, n), rings: make([]ring, n), services: make([]serviceArea, n), shared: &s}
	size, slot := boardBytes(s.slotDataBytes(n))
	var others []*atomic.Uint64
	for r, p := range s.Memory {
		g.boards[r] = board{p, slot}
		g.rings[r] = ring{unsafe.Add(p, size), s.Ring / numWindows / lineBytes * lineBytes}
		g.services[r] = newServiceArea(unsafe.Add(p, s.serviceAt(n)), n)
		if r != s.Rank {
			others = append(others, g.boards[r].sleeping())
		}
	}
	g.lot = wait.NewPeerParkingLot(affinity.Oversubscribed(n, s.CPUMasks), g.boards[s.Rank].sleeping(), others)
	if affinity.Disjoint(s.CPUMasks) {
		g.lot.SpinLonger()
	}
	// All ranks must come to the same.
	g.vmreadPair = n == 2 && s.ReadProcess != nil && affinity.Known(s.CPUMasks) && !affinity.Oversubscribed(n, s.CPUMasks)
	e := &Engine{
		g: g, rank: s.Rank, board: g.boards[s.Rank], w: wait.NewWaiter(g.lot),
		from: make([]unsafe.Pointer, n), scale: make([]float64, n),
	}
	if s.ReadProcess != nil {
		e.w.WhileWaiting(e.serve)
	}
	if s.Ended != nil {
		e.w.CheckPeers(e.checkProcesses)
	}
	return e
}
