package shm

import (
	"context"
	"sync/atomic"
	"unsafe"

	"github.com/tutti-go/tutti/internal/affinity"
	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/transport/shmem"
	"github.com/tutti-go/tutti/internal/wait"
)

// Shared configures the rank of this process in a group of processes.
type Shared struct {
	Options
	Rank int
	// Memory is this process's mapping of each rank's segment, by rank, of
	// SharedBytes each. This rank writes only its own segment and reads the others.
	Memory []unsafe.Pointer
	// CPUMasks holds, for each rank, the processors that its process may use: see
	// affinity.Mask. If there are fewer processors than ranks, a waiting rank does
	// not spin. Nil: all processes have the same processors as this one.
	CPUMasks [][]byte
	// ReadProcess copies bytes from an address in another rank's process to dst.
	// Nil: not all ranks can read each other's memory. The error ESRCH says that
	// the process has ended.
	ReadProcess func(rank int, dst unsafe.Pointer, addr uint64, bytes int) error
	// OnUnreadable, if not nil, is called at most once, by the goroutine in Run,
	// when the rank named reader could not read this rank's buffer with
	// ReadProcess. Afterwards such data goes through the segments.
	OnUnreadable func(reader int, reason error)
	// Ended reports whether the process of another rank has ended without leaving
	// the group; see checkProcesses. Nil: that cannot be detected.
	Ended func(rank int) bool
	// OnFail reports a failure that began on this rank, before the engine takes it
	// as its cause. If the owner knows of an earlier failure, it calls Fail with
	// that failure, marked as Told. Nil: this group is part of another group, which
	// reports the failures and passes its own to this group.
	OnFail func(*engine.Failure)
	// Excuse, if not nil, returns why this rank leaves the group although it has
	// not failed, or nil if there is no reason; see engine.Excuse.
	Excuse func() *engine.Failure
	// Sub and Alloc create groups and memory, which need more than this group's
	// segments.
	Sub   func(ctx context.Context, seq uint64, members []int) (engine.Engine, error)
	Alloc func(ctx context.Context, seq uint64, bytes int) (*engine.Region, error)
	// OnClose releases the resources of the group.
	OnClose func() error
}

// ringBytes is the default size of a ring, in bytes. The windows should stay in a
// core's cache.
const ringBytes = numWindows * (512 << 10)

// SharedBytes returns the size, in bytes, of one rank's segment in a group of the
// given number of ranks.
func SharedBytes(ranks int, opt Options) int {
	opt.fillShared(ranks)
	return opt.messagesAt(ranks) + shmem.Bytes(ranks)
}

// messagesAt returns the offset of a rank's message lane in its segment, behind its service area.
func (o *Options) messagesAt(ranks int) int {
	return (o.serviceAt(ranks) + answersBytes(ranks) + serviceBytes + lineBytes - 1) / lineBytes * lineBytes
}

// serviceAt returns the offset of a rank's service area in its segment, behind its
// board and its ring with the results.
func (o *Options) serviceAt(ranks int) int {
	b, _ := boardBytes(o.slotDataBytes(ranks))
	return (b + o.Ring + o.Ring/ranks + numWindows*lineBytes + lineBytes - 1) / lineBytes * lineBytes
}

// fillShared sets the defaults between processes. All other ranks read a whole
// slot, so with more ranks dividing the work pays at smaller sizes.
func (o *Options) fillShared(ranks int) {
	if o.Small <= 0 {
		o.Small = min(32<<10, max(4<<10, 128<<10/ranks))
	}
	o.fill()
}

// slotDataBytes returns the size of a slot's data area, in bytes: at least one
// count per rank, or a regionBuffer.
func (o *Options) slotDataBytes(ranks int) int { return max(o.Small, 8*ranks, regionBufferBytes) }

// NewShared returns the engine of this process's rank. While the rank waits, it answers other ranks' requests
// and checks for ended processes, on the goroutine in Run. The boards lie in s.Memory, which the caller
// unmaps only after Close.
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
	g.parking = wait.NewPeerParkingLot(affinity.Oversubscribed(n, s.CPUMasks), g.boards[s.Rank].sleeping(), others)
	if affinity.Disjoint(s.CPUMasks) {
		g.parking.SpinLonger()
	}
	// All ranks must compute the same value, because it selects the path of a call.
	g.vmreadPair = n == 2 && s.ReadProcess != nil && affinity.Known(s.CPUMasks) && !affinity.Oversubscribed(n, s.CPUMasks)
	e := &Engine{
		g: g, rank: s.Rank, board: g.boards[s.Rank], w: wait.NewWaiter(g.parking),
		from: make([]unsafe.Pointer, n), scale: make([]float64, n),
	}
	if s.ReadProcess != nil {
		e.w.WhileWaiting(e.serve)
	}
	if s.Ended != nil {
		e.w.CheckPeers(e.checkProcesses)
	}
	e.lane = e.newLane(&s)
	e.messages = e.newMessages(e.lane)
	return e
}
