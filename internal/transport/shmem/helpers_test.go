package shmem

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/segment"
	"github.com/tutti-go/tutti/internal/transport"
	"github.com/tutti-go/tutti/internal/wait"
)

// deadline bounds waits that must end.
const deadline = 2 * time.Minute

// tiny are limits with which few and small messages reach every path.
var tiny = sizes{
	record: minRecordBytes, entries: 4, blocks: [numClasses]blocks{{160, 3}, {1024, 2}, {2048, 1}},
	chunk: 256, chunks: 2, streams: 1, slabMax: 700,
}

// A world is a group of ranks in one process.
type world struct {
	ranks []*rank
	left  []atomic.Pointer[error]
	reads atomic.Int64 // calls of ReadProcess
}

// A rank is one rank of a world. It is its Handler.
type rank struct {
	*Lane
	world  *world
	lot    *wait.ParkingLot
	accept func(*transport.Message) error
	note   func(from int, n *transport.Note)
}

func (r *rank) Accept(m *transport.Message) error {
	if r.accept != nil {
		return r.accept(m)
	}
	return nil
}

func (r *rank) Note(from int, n *transport.Note) {
	if r.note != nil {
		r.note(from, n)
	}
}

// newWorld returns a group of n ranks. Each change adapts the options of each rank.
func newWorld(tb testing.TB, n int, s *sizes, changes ...func(*world, *Options)) *world {
	w := &world{ranks: make([]*rank, n), left: make([]atomic.Pointer[error], n)}
	bytes := Bytes(n)
	if s != nil {
		l := newLayout(n, *s)
		bytes = l.bytes
	}
	memory := make([]unsafe.Pointer, n)
	words := make([]atomic.Uint64, n)
	for i := range memory {
		mem := make([]byte, bytes+lineBytes)
		p := unsafe.Pointer(unsafe.SliceData(mem))
		memory[i] = unsafe.Add(p, -uintptr(p)&(lineBytes-1))
	}
	for i := range w.ranks {
		var others []*atomic.Uint64
		for j := range words {
			if j != i {
				others = append(others, &words[j])
			}
		}
		lot := wait.NewPeerParkingLot(n > runtime.GOMAXPROCS(0), &words[i], others)
		opt := Options{
			Rank: i, Memory: memory, ParkingLot: lot, sizes: s,
			Left: func(r int) error {
				if err := w.left[r].Load(); err != nil {
					return *err
				}
				return nil
			},
		}
		for _, change := range changes {
			change(w, &opt)
		}
		w.ranks[i] = &rank{Lane: New(opt), world: w, lot: lot}
		w.ranks[i].Handle(w.ranks[i])
	}
	tb.Cleanup(func() {
		for _, r := range w.ranks {
			r.Close()
		}
	})
	return w
}

// readSelf makes ReadProcess read this process.
func readSelf(tb testing.TB) func(*world, *Options) {
	self := segment.NewProcessIdentity()
	var words [2]uint64
	if err := segment.ReadProcess(self, unsafe.Pointer(&words[0]), uint64(uintptr(unsafe.Pointer(&words[1]))), 8); err != nil {
		tb.Skip("this system does not let a process read another's memory: ", err)
	}
	return func(w *world, opt *Options) {
		opt.ReadProcess = func(_ int, dst unsafe.Pointer, addr uint64, n int) error {
			w.reads.Add(1)
			return segment.ReadProcess(self, dst, addr, n)
		}
	}
}

// refuseRead makes ReadProcess fail.
func refuseRead(err error) func(*world, *Options) {
	return func(w *world, opt *Options) {
		opt.ReadProcess = func(int, unsafe.Pointer, uint64, int) error {
			w.reads.Add(1)
			return err
		}
	}
}

// inRegion makes memory a region that all ranks map.
func inRegion(memory []byte) func(*world, *Options) {
	base := unsafe.Pointer(unsafe.SliceData(memory))
	return func(_ *world, opt *Options) {
		opt.Locate = func(p unsafe.Pointer, bytes int) (uint64, int64) {
			off := int64(uintptr(p)) - int64(uintptr(base))
			if off < 0 || off+int64(bytes) > int64(len(memory)) {
				return 0, 0
			}
			return 7, off
		}
		opt.ReadRegion = func(_ int, region uint64, off int64, dst unsafe.Pointer, bytes int) bool {
			if region != 7 || off < 0 || off > int64(len(memory)-bytes) {
				return false
			}
			copy(unsafe.Slice((*byte)(dst), bytes), memory[off:])
			return true
		}
	}
}

// waiter returns a waiter of the rank whose operation has begun.
func (r *rank) waiter(ctx context.Context, timeout time.Duration) *wait.Waiter {
	w := wait.NewWaiter(r.lot)
	w.Begin(ctx, timeout)
	return w
}

// finish finishes a message that must complete.
func (r *rank) finish(tb testing.TB, m *transport.Message) bool {
	tb.Helper()
	w := r.waiter(context.Background(), deadline)
	defer w.End()
	if err := r.Finish(w, m); err != nil {
		tb.Errorf("rank %d: %v of %d bytes with %d, tag %d: %v", r.opt.Rank, m.Send, len(m.Body), m.Peer, m.Tag, err)
		return false
	}
	return true
}

func (r *rank) postSend(to, tag int, body []byte) *transport.Message {
	m := &transport.Message{Send: true, Peer: to, Tag: tag, Kind: uint8(tag), Body: body}
	r.Post(m)
	return m
}

func (r *rank) postReceive(from, tag int, body []byte) *transport.Message {
	m := &transport.Message{Peer: from, Tag: tag, Body: body}
	r.Post(m)
	return m
}

// pattern returns n bytes that depend on seed.
func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed*31)
	}
	return b
}

// each runs f for each rank at the same time.
func (w *world) each(f func(r *rank)) {
	var g sync.WaitGroup
	for _, r := range w.ranks {
		g.Go(func() { f(r) })
	}
	g.Wait()
}
