package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/enginetest"
	"github.com/tutti-go/tutti/internal/kernel"
	"github.com/tutti-go/tutti/internal/transport/mem"
)

func TestEngine(t *testing.T) {
	enginetest.Run(t, world(Options{}, mem.Options{}), enginetest.Options{})
}

// unbuffered is a transport that buffers no frames.
var unbuffered = mem.Options{Frames: -1}

// forced are two sets of algorithms that together contain every algorithm.
var forced = map[string]Algorithms{
	"small": {
		AllReduce: Doubling, Reduce: Tree, Broadcast: Tree, AllGather: Bruck, ReduceScatter: Halving,
		Gather: Tree, Scatter: Tree, AllToAll: Bruck, Scan: Doubling,
	},
	"large": {
		AllReduce: Ring, Reduce: Ring, Broadcast: Chain, AllGather: Ring, ReduceScatter: Ring,
		Gather: Direct, Scatter: Direct, AllToAll: Direct, Scan: Chain,
	},
	"middle":  {AllReduce: Halving, Reduce: Direct, ReduceScatter: Direct},
	"ordered": {AllReduce: Direct, Reduce: Linear},
	"copied":  {AllReduce: Bruck, Scan: Bruck},
}

// TestAlgorithms runs the suite with segments and a transport without buffers. The
// algorithms that forced lacks are chosen in TestEngine, and TestEveryNumberOfRanks
// runs all of them.
func TestAlgorithms(t *testing.T) {
	for _, name := range []string{"large", "small"} {
		opt := Options{Algorithms: forced[name], Segment: 1 << 10}
		t.Run(name, func(t *testing.T) { enginetest.Run(t, world(opt, unbuffered), enginetest.Options{Light: true}) })
	}
}

// TestReproducible checks that reproducible reductions equal the sequential
// reference. The size of the data selects each of their algorithms.
func TestReproducible(t *testing.T) {
	opt := Options{Reproducible: true, Segment: 1000}
	enginetest.Run(t, world(opt, unbuffered), enginetest.Options{Light: true, RankOrder: true})
}

// onAll runs body once per rank of a group.
func onAll(tb testing.TB, engines []engine.Engine, body func(ctx context.Context, e engine.Engine) error) []error {
	tb.Helper()
	errs := make([]error, len(engines))
	var wg sync.WaitGroup
	for i, e := range engines {
		wg.Go(func() {
			defer e.Close()
			errs[i] = body(tb.Context(), e)
		})
	}
	wg.Wait()
	return errs
}

// TestEveryNumberOfRanks runs every algorithm on several numbers of ranks and segment sizes, each rank on a
// goroutine, without buffering between them: an order of sends and receives that could deadlock would hang.
func TestEveryNumberOfRanks(t *testing.T) {
	for name, a := range forced {
		for _, ranks := range []int{1, 2, 3, 4, 5, 6, 7, 8, 16} {
			for _, segment := range []int{24, 0} {
				t.Run(fmt.Sprintf("%s/ranks=%d/segment=%d", name, ranks, segment), func(t *testing.T) {
					engines := world(Options{Algorithms: a, Segment: segment}, unbuffered)(t, ranks)
					errs := onAll(t, engines, func(ctx context.Context, e engine.Engine) error {
						return everyVerb(ctx, enginetest.NewRank(e))
					})
					if err := errors.Join(errs...); err != nil {
						t.Fatal(err)
					}
				})
			}
		}
	}
}

func everyVerb(ctx context.Context, r *enginetest.Rank) error {
	for v := engine.AllReduce; v < engine.Barrier; v++ {
		for i, red := range []engine.ReduceOp{engine.Sum, engine.Avg, engine.PreMul, engine.Max} {
			op := enginetest.Op{Verb: v, ReduceOp: red, Type: kernel.Float32, Exact: true, N: i * 17, Root: i}
			if !v.Accepts(red) {
				continue
			}
			if err := r.Do(ctx, op); err != nil {
				return err
			}
		}
	}
	return nil
}

func mem32(s []float32) engine.Mem {
	return engine.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(s)), N: len(s), Type: kernel.Float32}
}

// TestSameBits checks that all ranks have the same bits, also where the order
// changes them.
func TestSameBits(t *testing.T) {
	for _, a := range []Algorithm{Doubling, Halving, Ring, Direct, Bruck} {
		for ranks := 2; ranks <= 9; ranks++ {
			opt := Options{Algorithms: Algorithms{AllReduce: a}, Segment: 64}
			results := make([][]float32, ranks)
			errs := onAll(t, world(opt, mem.Options{})(t, ranks), func(ctx context.Context, e engine.Engine) error {
				rnd := rand.New(rand.NewPCG(1, uint64(e.Rank())))
				s := make([]float32, 333)
				for i := range s {
					s[i] = math.Float32frombits(rnd.Uint32()&^(0x7f<<24) | 0x3f<<24)
				}
				s[7] = float32(math.Copysign(0, float64(e.Rank()%2)-0.5))
				s[8+e.Rank()] = math.Float32frombits(0x7FC00000 + rnd.Uint32N(1000))
				results[e.Rank()] = s
				return e.Run(ctx, 1, []engine.Call{{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: mem32(s), Dst: mem32(s)}})
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			for r, s := range results {
				if !bytes.Equal(bytesOf(mem32(s)), bytesOf(mem32(results[0]))) {
					t.Errorf("%v on %d ranks: ranks 0 and %d have different bits", a, ranks, r)
				}
			}
		}
	}
}

// TestScanGroups compares the bits of scans of floats with sums that are grouped as docs/design/network.md says:
// by doubling distances, or from rank 0 on.
func TestScanGroups(t *testing.T) {
	const elems = 333
	for _, alg := range []Algorithm{Doubling, Chain, Bruck} {
		for ranks := 2; ranks <= 9; ranks++ {
			in := make([][]float32, ranks)
			for r := range in {
				rnd := rand.New(rand.NewPCG(2, uint64(r)))
				for range elems {
					in[r] = append(in[r], rnd.Float32())
				}
			}
			upTo, before := groupedSums(in, alg == Doubling)
			opt := Options{Algorithms: Algorithms{Scan: alg}, Segment: 64}
			errs := onAll(t, world(opt, unbuffered)(t, ranks), func(ctx context.Context, e engine.Engine) error {
				r := e.Rank()
				got, gotBefore := make([]float32, elems), make([]float32, elems)
				err := e.Run(ctx, 1, []engine.Call{
					{Verb: engine.Scan, ReduceOp: engine.Sum, Src: mem32(in[r]), Dst: mem32(got)},
					{Verb: engine.ExScan, ReduceOp: engine.Sum, Src: mem32(in[r]), Dst: mem32(gotBefore)},
				})
				if err == nil && (!slices.Equal(got, upTo[r]) || r > 0 && !slices.Equal(gotBefore, before[r])) {
					err = fmt.Errorf("%v on %d ranks: rank %d has sums of other groups", alg, ranks, r)
				}
				return err
			})
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
		}
	}
}

// groupedSums returns, by rank, the sums of the sources up to that rank and before it.
func groupedSums(in [][]float32, doubling bool) (upTo, before [][]float32) {
	add := func(a, b []float32) []float32 {
		if b == nil {
			return a
		}
		sum := make([]float32, len(a))
		for i := range a {
			sum[i] = a[i] + b[i]
		}
		return sum
	}
	before = make([][]float32, len(in))
	if !doubling {
		for r := range in {
			if r == 0 {
				upTo = append(upTo, in[0])
				continue
			}
			before[r] = upTo[r-1]
			upTo = append(upTo, add(upTo[r-1], in[r]))
		}
		return upTo, before
	}
	upTo = in
	for d := 1; d < len(in); d *= 2 {
		next := slices.Clone(upTo)
		for r := d; r < len(in); r++ {
			next[r], before[r] = add(upTo[r-d], upTo[r]), add(upTo[r-d], before[r])
		}
		upTo = next
	}
	return upTo, before
}

// failures runs one call per rank that must fail, and returns the error text, which
// must be the same on all ranks.
func failures(t *testing.T, engines []engine.Engine, call func(rank int) engine.Call) string {
	t.Helper()
	errs := onAll(t, engines, func(ctx context.Context, e engine.Engine) error {
		for seq := uint64(1); ; seq++ {
			if err := e.Run(ctx, seq, []engine.Call{call(e.Rank())}); err != nil {
				return err
			}
		}
	})
	for _, err := range errs {
		if err.Error() != errs[0].Error() {
			t.Errorf("ranks report different causes:\n%v\n%v", errs[0], err)
		}
	}
	return errs[0].Error()
}

// TestDifferentOptions checks that ranks with different options fail with the same error, which names the
// difference.
func TestDifferentOptions(t *testing.T) {
	for _, c := range []struct {
		name, text string
		a, b       Options
	}{
		{"algorithm", "with the same options", Options{Algorithms: Algorithms{AllReduce: Ring}}, Options{}},
		{"segment", "segments of 64", Options{Segment: 64, Algorithms: Algorithms{AllReduce: Ring}}, Options{Algorithms: Algorithms{AllReduce: Ring}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			engines := newWorld(mem.Options{}, c.a, c.b, c.a)
			text := failures(t, engines, func(int) engine.Call {
				s := make([]float32, 1000)
				return engine.Call{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: mem32(s), Dst: mem32(s)}
			})
			if !strings.Contains(text, c.text) {
				t.Errorf("the text does not say %q: %s", c.text, text)
			}
		})
	}
}

// TestBrokenConnection checks that a connection that breaks at any frame is
// reported as a lost rank on all ranks.
func TestBrokenConnection(t *testing.T) {
	errCut := errors.New("somebody cut the cable")
	for nth := range 6 {
		var broke bool
		net := mem.Options{Fault: func(from, to, n int) error {
			if from == 2 && to == 3 && n == nth {
				broke = true
				return errCut
			}
			return nil
		}}
		opt := Options{Segment: 64, Algorithms: Algorithms{AllReduce: Ring}}
		text := failures(t, world(opt, net)(t, 4), func(int) engine.Call {
			s := make([]float32, 100)
			return engine.Call{Verb: engine.AllReduce, ReduceOp: engine.Sum, Src: mem32(s), Dst: mem32(s)}
		})
		if !broke || !strings.Contains(text, errCut.Error()) {
			t.Errorf("frame %d: the fault happened: %v; the ranks say %s", nth, broke, text)
		}
	}
}

// TestTimeout checks that a group's own timeout ends operations whose context has
// no deadline.
func TestTimeout(t *testing.T) {
	engines := world(Options{Timeout: time.Millisecond}, mem.Options{})(t, 2)
	defer engines[1].Close()
	defer engines[0].Close()
	err := engines[0].Run(t.Context(), 1, []engine.Call{{Verb: engine.Barrier}})
	if !errors.Is(err, engine.ErrTimeout) || !strings.Contains(err.Error(), "nothing was heard of rank 1") {
		t.Errorf("a barrier without rank 1: %v", err)
	}
	if again := engines[1].Run(t.Context(), 1, []engine.Call{{Verb: engine.Barrier}}); again == nil || again.Error() != err.Error() {
		t.Errorf("rank 1 comes late and gets %v, rank 0 got %v", again, err)
	}
}

// TestExitReason checks that a rank that waits for a rank that has left because of a
// failure reports that failure, also without a control channel.
func TestExitReason(t *testing.T) {
	var engines []*Engine
	for _, m := range mem.New(3, mem.Options{}) {
		engines = append(engines, New(m, Options{ParkingLot: m.ParkingLot(), OnFail: func(*engine.Failure) {}}))
	}
	engines[0].Fail(&engine.Failure{Kind: engine.ErrRankLost, Rank: 2, Lost: []int{2}, Facts: engine.Facts{Text: "rank 2 is lost: on purpose"}, Told: true})
	if err := engines[0].Close(); err != nil {
		t.Fatal(err)
	}
	err := engines[1].Run(t.Context(), 1, []engine.Call{{Verb: engine.Barrier}})
	f := (*engine.Failure)(nil)
	if !errors.As(err, &f) || !slices.Equal(f.Lost, []int{2}) || f.Reason() != "rank 2 is lost: on purpose" || f.Told {
		t.Errorf("it was told %v", err)
	}
}
