package shm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/kernel"
)

// A refusingGroup is a group in which some calls of ReadProcess fail. It counts all calls.
type refusingGroup struct {
	engines []engine.Engine
	// refuse returns the error for the nth read of a rank, counted from zero, or
	// nil.
	refuse func(reader, nth, owner int) error

	reads    []atomic.Int64 // number of reads, by reader
	refused  atomic.Int64
	mu       sync.Mutex
	reported []string // calls of OnUnreadable; guarded by mu
}

// newRefusingGroup makes a group whose reads of other processes' memory refuse may fail: it gets the reader,
// the number of the read, and the owner. A refused read first copies a half. The ranks' goroutines call it;
// g.mu guards only g.reported. It skips the test if the system allows no such reads.
func newRefusingGroup(t *testing.T, ranks int, opt Options, refuse func(reader, nth, owner int) error) *refusingGroup {
	t.Helper()
	g := &refusingGroup{refuse: refuse, reads: make([]atomic.Int64, ranks)}
	if readSelf() == nil {
		t.Skip("this system does not let a process read another's memory")
	}
	m := &mapped{tb: t, opt: opt, subs: make(map[string][]engine.Engine)}
	m.wrapRead = func(reader int, read readFunc) readFunc {
		return func(owner int, dst unsafe.Pointer, addr uint64, n int) error {
			nth := int(g.reads[reader].Add(1) - 1)
			why := g.refuse(reader, nth, owner)
			if why == nil {
				return read(owner, dst, addr, n)
			}
			g.refused.Add(1)
			// The kernel may copy a part before it refuses.
			if err := read(owner, dst, addr, n/2); err != nil {
				return err
			}
			return why
		}
	}
	m.unreadable = func(rank, reader int, reason error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.reported = append(g.reported, fmt.Sprintf("rank %d: %d: %v", rank, reader, reason))
	}
	g.engines = m.group("world", ranks)
	return g
}

// batch returns calls of one verb, with elements that differ between ranks and
// calls, and a function that checks the results.
func batch(verb engine.Verb, rank, ranks, calls, n, round int) (list []engine.Call, check func() error) {
	value := func(rank, call, i int) int32 { return int32(rank<<24 + round<<20 + call<<16 + i) }
	for call := range calls {
		src, dst := make([]int32, ranks*n), make([]int32, ranks*n)
		for i := range src {
			src[i] = value(rank, call, i)
		}
		mem := func(s []int32, n int) engine.Mem {
			return engine.Mem{Ptr: unsafe.Pointer(&s[0]), N: n, Type: kernel.Int32}
		}
		c := engine.Call{Verb: verb, Src: mem(src, n), Dst: mem(dst, n), ReduceOp: engine.Sum}
		switch verb {
		case engine.AllGather:
			c.Dst.N = ranks * n
		case engine.AllToAll:
			c.Src.N, c.Dst.N = ranks*n, ranks*n
		case engine.Broadcast:
			c.Root = 1
			if rank != c.Root {
				c.Src = c.Dst
			} else {
				c.Dst = c.Src
			}
		case engine.Reduce:
			c.Root = 1
			if rank != c.Root {
				c.Dst = engine.Mem{}
			}
		}
		list = append(list, c)
	}
	return list, func() error {
		for call, c := range list {
			for i, got := range unsafe.Slice((*int32)(c.Dst.Ptr), c.Dst.N) {
				var want int32
				switch verb {
				case engine.AllGather:
					want = value(i/n, call, i%n)
				case engine.AllToAll:
					want = value(i/n, call, rank*n+i%n)
				case engine.Broadcast:
					want = value(c.Root, call, i)
				case engine.ExScan:
					for r := range rank {
						want += value(r, call, i)
					}
				case engine.Reduce:
					for r := range ranks {
						want += value(r, call, i)
					}
				}
				if got != want {
					return fmt.Errorf("%v %d of round %d: element %d is %#x, want %#x", verb, call, round, i, got, want)
				}
			}
		}
		return nil
	}
}

// run makes all ranks carry out a batch, each on a goroutine, and check its results. It returns all errors;
// no rank waits longer than a minute.
func (g *refusingGroup) run(t *testing.T, verb engine.Verb, calls, n, round int) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	errs := make([]error, len(g.engines))
	var running sync.WaitGroup
	for r, e := range g.engines {
		running.Go(func() {
			list, check := batch(verb, r, len(g.engines), calls, n, round)
			if errs[r] = e.Run(ctx, uint64(round+1), list); errs[r] == nil {
				errs[r] = check()
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

func (g *refusingGroup) allReads() (n int64) {
	for r := range g.reads {
		n += g.reads[r].Load()
	}
	return n
}

// vmreadVerbs are the verbs whose data ranks of a group of any size read from other processes. An ExScan needs
// two ranks.
var vmreadVerbs = []engine.Verb{engine.AllGather, engine.AllToAll, engine.Broadcast, engine.Reduce}

// TestUnreadable refuses each read of each rank in turn, alone or with all later
// reads. All ranks must have correct results in that batch, in which ranks run
// ahead of each other, and in the next batches, in which ReadProcess is not called
// any more.
func TestUnreadable(t *testing.T) {
	threadPerRank(t)
	const calls, elems = slotsPerBoard + 2, 70
	tiny := Options{Small: 64, Ring: 3 * 1024, VMReadMin: 128, Service: 100}
	large := Options{Small: 2048, Ring: 3 * 1024, VMReadMin: 128, Service: 100} // data that vmreadPair copies with ReadProcess would fit into slots
	for _, verb := range append(vmreadVerbs, engine.ExScan) {
		for _, ranks := range []int{2, 3} {
			if verb == engine.ExScan && ranks > 2 {
				continue
			}
			for _, pair := range []bool{false, true}[:4-ranks] {
				t.Run(fmt.Sprintf("%v/ranks=%d/pair=%v", verb, ranks, pair), func(t *testing.T) {
					opt := tiny
					if pair {
						opt = large
						if verb == engine.AllToAll {
							t.Skip("a pair does not swap it")
						}
					}
					for reader := range ranks {
						for nth := 0; ; nth++ {
							hit := false
							for _, rest := range []bool{false, true} {
								g := newRefusingGroup(t, ranks, opt, func(r, n, _ int) error {
									if r == reader && (n == nth || rest && n > nth) {
										return syscall.EFAULT
									}
									return nil
								})
								for _, e := range g.engines {
									e.(*Engine).g.vmreadPair = pair
								}
								if err := g.run(t, verb, calls, elems, 0); err != nil {
									t.Fatalf("read %d of rank %d is refused, and later ones: %v: %v", nth, reader, rest, err)
								}
								if hit = g.refused.Load() > 0; !hit {
									break
								}
								before := g.allReads()
								for round := 1; round < 3; round++ {
									if err := g.run(t, verb, calls, elems, round); err != nil {
										t.Fatalf("after read %d of rank %d was refused: %v", nth, reader, err)
									}
								}
								if n := g.allReads() - before; n != 0 {
									t.Fatalf("%d reads after one was refused", n)
								}
								// With all later reads refused, buffers of several
								// ranks may be affected.
								most := 1
								if rest {
									most = ranks - 1
								}
								want := fmt.Sprintf(": %d: bad address", reader)
								if n := len(g.reported); n == 0 || n > most || !strings.HasSuffix(g.reported[0], want) {
									t.Fatalf("it was reported as %q", g.reported)
								}
							}
							if !hit {
								none := verb == engine.Broadcast && reader == 1 || verb == engine.Reduce && reader != 1 || verb == engine.ExScan && reader == 0
								if (nth == 0) != none {
									t.Fatalf("rank %d reads %d times", reader, nth)
								}
								break
							}
						}
					}
				})
			}
		}
	}
}

// TestUnreadableAll refuses the reads of all ranks, of one rank's memory, or a pseudo-random choice, with
// data that takes many answers. All operations must succeed.
func TestUnreadableAll(t *testing.T) {
	threadPerRank(t)
	const ranks = 4
	for name, refuse := range map[string]func(reader, nth, owner int) error{
		"all":       func(int, int, int) error { return syscall.EPERM },
		"one owner": func(_, _, owner int) error { return map[bool]error{true: syscall.EFAULT}[owner == 1] },
		"some":      func(r, nth, owner int) error { return map[bool]error{true: syscall.ENOMEM}[(7*r+5*nth+3*owner)%4 == 0] },
	} {
		for _, verb := range vmreadVerbs {
			t.Run(fmt.Sprintf("%v/%s", verb, name), func(t *testing.T) {
				elems := 60_000
				if verb == engine.Reduce {
					elems = 5000
				}
				g := newRefusingGroup(t, ranks, Options{Small: 4096}, refuse)
				for round := range 3 {
					if err := g.run(t, verb, 3, elems, round); err != nil {
						t.Fatal(err)
					}
				}
				if g.refused.Load() == 0 && !(verb == engine.Reduce && name == "one owner") { // rank 1 is its root
					t.Error("nothing was refused")
				}
			})
		}
	}
}

// TestUnreadableSuite runs the conformance suite with every read refused, so that every large transfer takes
// the path through the owner.
func TestUnreadableSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long")
	}
	threadPerRank(t)
	var refused atomic.Int64
	world := func(tb testing.TB, ranks int) []engine.Engine {
		m := &mapped{tb: tb, opt: Options{Small: 64, Ring: 3 * 1024, VMReadMin: 1}, subs: make(map[string][]engine.Engine)}
		m.wrapRead = func(int, readFunc) readFunc {
			return func(int, unsafe.Pointer, uint64, int) error {
				refused.Add(1)
				return syscall.EPERM
			}
		}
		return m.group("world", ranks)
	}
	enginetest.Run(t, world, enginetest.Options{RankOrder: true, Light: true})
	if refused.Load() == 0 && readSelf() != nil {
		t.Error("nothing was refused")
	}
}

// TestUnreadableLost tests a buffer that cannot be read and whose owner dies before it answers, or is known
// to have ended. The reader, on a goroutine of its own, returns ErrRankLost. The test's goroutine plays the
// owner that dies.
func TestUnreadableLost(t *testing.T) {
	threadPerRank(t)
	t.Run("dies", func(t *testing.T) {
		asked := make(chan struct{})
		var once sync.Once
		g := newRefusingGroup(t, 2, Options{VMReadMin: 128}, func(int, int, int) error {
			once.Do(func() { close(asked) })
			return syscall.EFAULT
		})
		lost := &engine.Failure{Kind: engine.ErrRankLost, Lost: []int{1}, Facts: engine.Facts{Text: "rank 1 is lost: on purpose"}, Told: true}
		errs := make(chan error, 1)
		list, _ := batch(engine.Broadcast, 0, 2, 1, 20_000, 0)
		go func() { errs <- g.engines[0].Run(t.Context(), 1, list) }()
		// Rank 1 announces its buffer and does nothing more.
		src, _ := batch(engine.Broadcast, 1, 2, 1, 20_000, 0)
		owner := g.engines[1].(*Engine)
		h, err := owner.beginCall(&src[0])
		if err != nil {
			t.Fatal(err)
		}
		if !owner.announceRemote(&src[0]) {
			t.Fatal("the buffer was not announced")
		}
		owner.publish(h)
		<-asked
		g.engines[0].Fail(lost)
		if err := <-errs; !errors.Is(err, engine.ErrRankLost) {
			t.Errorf("it ended with %v", err)
		}
		owner.clearExposures()
	})
	t.Run("has ended", func(t *testing.T) {
		g := newRefusingGroup(t, 2, Options{VMReadMin: 128}, func(int, int, int) error { return syscall.ESRCH })
		err := g.run(t, engine.Broadcast, 1, 20_000, 0)
		f := (*engine.Failure)(nil)
		if !errors.As(err, &f) || !errors.Is(f.Kind, engine.ErrRankLost) || len(f.Lost) != 1 || f.Lost[0] != 1 {
			t.Errorf("it ended with %v", err)
		}
		if len(g.reported) != 0 {
			t.Errorf("it was reported as %q", g.reported)
		}
	})
}
