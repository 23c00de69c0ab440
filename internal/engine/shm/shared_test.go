//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/segment"
)

// mapped makes groups as processes do, within this process: every rank has its own
// mapping of every segment and writes only its own segment.
type mapped struct {
	tb  testing.TB
	opt Options
	// wrapRead, if not nil, wraps the function with which a rank reads other ranks'
	// memory.
	wrapRead func(reader int, read readFunc) readFunc
	// ended, if not nil, is Shared.Ended of each rank.
	ended func(rank int) bool
	// unreadable, if not nil, is Shared.OnUnreadable of each rank.
	unreadable func(rank, reader int, reason error)

	mu   sync.Mutex
	subs map[string][]engine.Engine // subgroups by name; guarded by mu
}

func mappedWorld(opt Options) enginetest.World {
	return func(tb testing.TB, ranks int) []engine.Engine {
		m := &mapped{tb: tb, opt: opt, subs: make(map[string][]engine.Engine)}
		return m.group("world", ranks)
	}
}

// group makes the engines of all ranks, each with its own mapping of the segments. The first failure of a
// rank fails all of them; first holds it. The end of the test unmaps the segments.
func (m *mapped) group(name string, ranks int) []engine.Engine {
	bytes := SharedBytes(ranks, m.opt)
	maps := []*segment.Segment{must(segment.New("tutti-test", ranks, bytes, 0))}
	for r := 1; r < ranks; r++ {
		fd := must(unix.FcntlInt(uintptr(maps[0].FD()), unix.F_DUPFD_CLOEXEC, 0))
		maps = append(maps, must(segment.Map(fd, ranks, bytes, r)))
	}
	engines := make([]engine.Engine, ranks)
	var first atomic.Pointer[engine.Failure]
	for r := range ranks {
		seg := maps[r]
		memory := make([]unsafe.Pointer, ranks)
		for s := range memory {
			memory[s] = seg.Part(s)
		}
		m.tb.Cleanup(func() {
			if err := seg.Close(); err != nil {
				m.tb.Errorf("rank %d: %v", r, err)
			}
		})
		engines[r] = NewShared(Shared{
			Options: m.opt, Rank: r, Memory: memory,
			ReadProcess: m.readProcess(r), Ended: m.ended,
			OnUnreadable: func(reader int, reason error) {
				if m.unreadable != nil {
					m.unreadable(r, reader, reason)
				}
			},
			OnFail: func(f *engine.Failure) {
				told := *f
				told.Told = true
				first.CompareAndSwap(nil, &told)
				for _, e := range engines {
					e.Fail(first.Load())
				}
			},
			Sub: func(ctx context.Context, seq uint64, members []int) (engine.Engine, error) {
				return engine.Form(ctx, engines[r], members, func(context.Context) (engine.Engine, error) {
					key := fmt.Sprint(name, seq, members)
					m.mu.Lock()
					defer m.mu.Unlock()
					if m.subs[key] == nil {
						m.subs[key] = m.group(key, len(members))
					}
					return m.subs[key][slices.Index(members, r)], nil
				})
			},
			Alloc: func(_ context.Context, _ uint64, bytes int) (*engine.Region, error) {
				mem := make([]uint64, bytes/8+1)
				return &engine.Region{Ptr: unsafe.Pointer(&mem[0]), Bytes: bytes, Free: func() error { return nil }}, nil
			},
			OnClose: func() error { return nil },
		})
	}
	return engines
}

type readFunc = func(rank int, dst unsafe.Pointer, addr uint64, n int) error

func (m *mapped) readProcess(reader int) readFunc {
	read := readSelf()
	if m.wrapRead == nil || read == nil {
		return read
	}
	return m.wrapRead(reader, read)
}

// readSelf returns a function that reads this process's memory as if it were
// another process's, or nil where the system cannot do that.
func readSelf() readFunc {
	self := segment.NewProcessIdentity()
	read := func(_ int, dst unsafe.Pointer, addr uint64, n int) error {
		return segment.ReadProcess(self, dst, addr, n)
	}
	var words [2]uint64
	if read(0, unsafe.Pointer(&words[0]), uint64(uintptr(unsafe.Pointer(&words[1]))), 8) != nil {
		return nil
	}
	return read
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// threadPerRank gives each rank a thread of its own, as a process would have. Ranks that
// wait for another process do not yield to goroutines.
func threadPerRank(t *testing.T) {
	before := runtime.GOMAXPROCS(20)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

func TestShared(t *testing.T) {
	threadPerRank(t)
	enginetest.Run(t, mappedWorld(Options{}), enginetest.Options{RankOrder: true, Light: true})
}

func TestSharedInPieces(t *testing.T) {
	threadPerRank(t)
	tiny := Options{Small: 64, Ring: 3 * 1024, VMReadMin: 1}
	enginetest.Run(t, mappedWorld(tiny), enginetest.Options{RankOrder: true, Light: true})
}

// TestPair tests two processes with a core each that exchange data which would fit into slots, in one call
// and in several calls at once. Each rank is a goroutine that writes its own element of errs. The goroutines
// stop at their first error.
func TestPair(t *testing.T) {
	threadPerRank(t)
	value := func(rank, call, i int) int32 { return int32(rank<<20 + call<<16 + i) }
	for _, verb := range []engine.Verb{engine.AllGather, engine.Broadcast, engine.Reduce} {
		t.Run(verb.String(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			engines := mappedWorld(Options{VMReadMin: 256})(t, 2)
			errs := make([]error, len(engines))
			var running sync.WaitGroup
			for _, e := range engines {
				if e.(*Engine).g.shared.ReadProcess == nil {
					t.Skip("this system does not let a process read another's memory")
				}
				e.(*Engine).g.vmreadPair = true
			}
			for r, e := range engines {
				running.Go(func() {
					for seq, n := range []int{1, 63, 64, 65, 96, 97, 5000} {
						calls := make([]engine.Call, 1+seq%2)
						for i := range calls {
							src, dst := make([]int32, n), make([]int32, 2*n)
							for j := range src {
								src[j] = value(r, i, j)
							}
							c := engine.Call{Verb: verb, Root: 1, ReduceOp: engine.Sum}
							c.Src = engine.Mem{Ptr: unsafe.Pointer(&src[0]), N: n, Type: kernel.Int32}
							c.Dst = engine.Mem{Ptr: unsafe.Pointer(&dst[0]), N: n, Type: kernel.Int32}
							switch {
							case verb == engine.AllGather:
								c.Root, c.Dst.N = 0, 2*n
							case verb == engine.Broadcast:
								c.Dst = c.Src
							case r != c.Root:
								c.Dst = engine.Mem{}
							}
							calls[i] = c
						}
						if errs[r] = e.Run(ctx, uint64(seq+1), calls); errs[r] != nil {
							return
						}
						for i, c := range calls {
							for j, got := range unsafe.Slice((*int32)(c.Dst.Ptr), c.Dst.N) {
								want := value(j/n, i, j%n)
								switch verb {
								case engine.Broadcast:
									want = value(1, i, j)
								case engine.Reduce:
									want += value(1, i, j)
								}
								if got != want {
									errs[r] = fmt.Errorf("%d elements, call %d: element %d is %d, not %d", n, i, j, got, want)
									return
								}
							}
						}
					}
				})
			}
			running.Wait()
			for r, err := range errs {
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

// TestExitReason checks that a rank that waits for a rank that has left because of a
// failure reports that failure.
func TestExitReason(t *testing.T) {
	threadPerRank(t)
	engines := mappedWorld(Options{})(t, 3)
	engines[0].Fail(&engine.Failure{Kind: engine.ErrRankLost, Rank: 2, Lost: []int{2}, Facts: engine.Facts{Text: "rank 2 is lost: on purpose"}, Told: true})
	if err := engines[0].Close(); err != nil {
		t.Fatal(err)
	}
	err := engines[1].Run(t.Context(), 1, []engine.Call{{Verb: engine.Barrier}})
	f := (*engine.Failure)(nil)
	if !errors.As(err, &f) || !slices.Equal(f.Lost, []int{2}) || f.Reason() != "rank 2 is lost: on purpose" {
		t.Errorf("it was told %v", err)
	}
}

// TestWithdrawn checks that a rank does not return data that it has read in another rank's own buffer after
// that rank has withdrawn the buffer: it waits, on its own goroutine, until the group fails.
func TestWithdrawn(t *testing.T) {
	threadPerRank(t)
	const elems = 1 << 20
	for _, verb := range []engine.Verb{engine.Broadcast, engine.AllReduce} {
		t.Run(verb.String(), func(t *testing.T) {
			engines := mappedWorld(Options{})(t, 2)
			region := Region{ID: 1, Bytes: 4 * elems}
			for range engines {
				mem := must(segment.Private(region.Bytes))
				t.Cleanup(func() { _ = mem.Close() })
				region.Base = append(region.Base, mem.Part(0))
			}
			result := make(chan error, 1)
			cause := &engine.Failure{Kind: engine.ErrAborted, Facts: engine.Facts{Text: "rank 0 gave up"}, Told: true}
			var running sync.WaitGroup
			t.Cleanup(func() { // end the ranks before the memory that they read is unmapped
				for _, e := range engines {
					e.Fail(cause)
				}
				running.Wait()
			})
			for r, e := range engines {
				e.(*Engine).AddRegion(region)
				m := engine.Mem{Ptr: region.Base[r], N: elems, Type: kernel.Float32}
				if r == 0 {
					e.(*Engine).board.withdrawn().Store(1)
				}
				running.Go(func() {
					err := e.Run(context.Background(), 1, []engine.Call{{Verb: verb, ReduceOp: engine.Sum, Dst: m, Src: m}})
					if r == 1 {
						result <- err
					}
				})
			}
			select {
			case err := <-result:
				t.Fatalf("it ended with %v", err)
			case <-time.After(50 * time.Millisecond): // nothing ends the operation, however long the test waits
			}
			for _, e := range engines {
				e.Fail(cause)
			}
			if err := <-result; !errors.Is(err, engine.ErrAborted) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// TestFreedTooSoon checks that a rank that has freed memory of Alloc too early makes all ranks fail with
// ErrMismatch that names it, and that the ranks do not take different paths. Each rank is a goroutine that
// writes its own element of errs.
func TestFreedTooSoon(t *testing.T) {
	threadPerRank(t)
	const elems = 1 << 16
	for _, verb := range []engine.Verb{engine.Broadcast, engine.AllGather, engine.AllReduce} {
		t.Run(verb.String(), func(t *testing.T) {
			engines := mappedWorld(Options{})(t, 2)
			regions := make([]Region, 2)
			for i := range regions {
				regions[i] = Region{ID: uint64(i + 1), Bytes: 2 * 4 * elems}
				for range engines {
					mem := must(segment.Private(regions[i].Bytes))
					t.Cleanup(func() { _ = mem.Close() })
					regions[i].Base = append(regions[i].Base, mem.Part(0))
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			errs := make([]error, len(engines))
			var running sync.WaitGroup
			for r, e := range engines {
				// Rank 0 works on the first region, which rank 1 has freed.
				e.(*Engine).AddRegion(regions[0])
				e.(*Engine).AddRegion(regions[1])
				if r == 1 {
					e.(*Engine).DropRegion(1)
				}
				m := engine.Mem{Ptr: regions[r].Base[r], N: elems, Type: kernel.Float32}
				c := engine.Call{Verb: verb, ReduceOp: engine.Sum, Dst: m, Src: m}
				if verb == engine.AllGather {
					c.Dst.N *= 2
					c.Src = c.Dst.Slice(r*elems, elems)
				}
				running.Go(func() { errs[r] = e.Run(ctx, 1, []engine.Call{c}) })
			}
			running.Wait()
			for r, err := range errs {
				if !errors.Is(err, engine.ErrMismatch) || !strings.Contains(err.Error(), "rank 1 has freed memory of Alloc that rank 0") {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

// TestManySteps tests groups that have run more small calls than pieceBits leaves bits for in the words of
// large calls.
func TestManySteps(t *testing.T) {
	threadPerRank(t)
	const ranks, elems = 3, 20_000
	local := func(tb testing.TB, n int) (list []engine.Engine) {
		for _, e := range NewLocal(n, Options{}) {
			list = append(list, e)
		}
		return list
	}
	for name, world := range map[string]enginetest.World{"goroutines": local, "processes": mappedWorld(Options{})} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			engines := world(t, ranks)
			const age = 1<<(64-pieceBits) - 4
			for _, e := range engines {
				e := e.(*Engine)
				e.step, e.allDone = age, age
				e.board.done().Store(age)
			}
			errs := make([]error, ranks)
			var running sync.WaitGroup
			for r, e := range engines {
				running.Go(func() {
					x := make([]int32, elems)
					m := engine.Mem{Ptr: unsafe.Pointer(&x[0]), N: elems, Type: kernel.Int32}
					for seq := uint64(1); seq < 10 && errs[r] == nil; seq++ {
						for i := range x {
							x[i] = int32(r+1) * int32(seq)
						}
						errs[r] = e.Run(ctx, seq, []engine.Call{{Verb: engine.AllReduce, ReduceOp: engine.Sum, Dst: m, Src: m}})
						for i := 0; i < elems && errs[r] == nil; i++ {
							if x[i] != 6*int32(seq) {
								errs[r] = fmt.Errorf("call %d: element %d is %d", seq, i, x[i])
							}
						}
					}
				})
			}
			running.Wait()
			for r, err := range errs {
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}
