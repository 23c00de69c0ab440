package enginetest

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/engine/shm"
	"github.com/tutti-go/tutti/internal/kernel"
)

// TestExactInputsHaveNoOrder checks that inputs marked exact have one result in any order, by reducing them
// forwards and backwards.
func TestExactInputsHaveNoOrder(t *testing.T) {
	for dtype := kernel.Int8; dtype.Valid(); dtype++ {
		for _, red := range ReduceOpsOf(engine.AllReduce, dtype) {
			for _, size := range []int{2, 3, 5, 7, 8, 13, 16} {
				op := Op{Verb: engine.AllReduce, ReduceOp: red, Type: dtype, N: 5000, Exact: true, Seed: uint64(size)}
				c := newCache()
				in, scales := make([][]byte, size), make([]float64, size)
				for rank := range in {
					in[rank], scales[rank] = op.sources(c, rank, size)[0], op.scale(rank)
				}
				forth := reduce(dtype, red, scales, in)
				slices.Reverse(in)
				slices.Reverse(scales)
				if !bytes.Equal(forth, reduce(dtype, red, scales, in)) {
					t.Errorf("%v on %d ranks depends on the order", op, size)
				}
			}
		}
	}
}

// TestWildInputsHaveAnOrder checks that the order of a sum changes the result for
// wild inputs. Otherwise RankOrder would test nothing.
func TestWildInputsHaveAnOrder(t *testing.T) {
	for dtype := kernel.Float16; dtype.IsFloat(); dtype++ {
		in := make([][]byte, 5)
		for rank := range in {
			in[rank] = newInput(dtype, wild, 1, rank, len(in), 500)
		}
		forth := reduce(dtype, engine.Sum, nil, in)
		slices.Reverse(in)
		if bytes.Equal(forth, reduce(dtype, engine.Sum, nil, in)) {
			t.Errorf("the sum of %v does not depend on the order", dtype)
		}
	}
}

// TestReference checks the sequential reference with inputs whose result depends on the order, and with
// infinities, NaN, signed zeros and overflows.
func TestReference(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	negative := math.Copysign(0, -1)
	for _, c := range []struct {
		red    engine.ReduceOp
		scales []float64
		in     []float64
		want   float64
	}{
		{engine.Sum, nil, []float64{1, 0x1p-53, 0x1p-53}, 1},
		{engine.Sum, nil, []float64{0x1p-53, 0x1p-53, 1}, 1 + 0x1p-52},
		{engine.Sum, nil, []float64{inf, -inf}, nan},
		{engine.Prod, nil, []float64{3, -2, 0.5}, -3},
		{engine.Min, nil, []float64{0, negative}, negative},
		{engine.Max, nil, []float64{negative, 0}, 0},
		{engine.Max, nil, []float64{-1, math.Float64frombits(0xFFF8000000000001)}, nan},
		{engine.Avg, nil, []float64{math.MaxFloat64, math.MaxFloat64}, math.MaxFloat64},
		{engine.PreMul, []float64{2, -1}, []float64{5, 3}, 7},
	} {
		in := make([][]byte, len(c.in))
		for i, x := range c.in {
			in[i] = newBytes(8)
			elements[float64](in[i])[0] = x
		}
		want := math.Float64bits(c.want)
		if c.want != c.want {
			want = 0x7FF8000000000000
		}
		if got := bitsAt(reduce(kernel.Float64, c.red, c.scales, in), kernel.Float64, 0); got != want {
			t.Errorf("%v of %v is %s, want %s", c.red, c.in, show(got, kernel.Float64), show(want, kernel.Float64))
		}
	}
	for red, want := range map[engine.ReduceOp]byte{engine.And: 0b1000, engine.Or: 0b1110, engine.Xor: 0b0110} {
		if got := reduce(kernel.Uint8, red, nil, [][]byte{{0b1100}, {0b1010}})[0]; got != want {
			t.Errorf("%v of 1100 and 1010 is %04b, want %04b", red, got, want)
		}
	}
	wrapped := [][]byte{{0x80}, {0xFF}} // int8: -128 and -1
	if got := reduce(kernel.Int8, engine.Sum, nil, wrapped)[0]; got != 127 {
		t.Errorf("the sum of int8 -128 and -1 is %d, want 127: it wraps", got)
	}
}

// TestAnyOrder checks that an engine without RankOrder gets inputs that need no
// order.
func TestAnyOrder(t *testing.T) {
	opt := Options{Light: true, Deadline: time.Minute}
	world := func(_ testing.TB, ranks int) []engine.Engine {
		var engines []engine.Engine
		for _, e := range shm.NewLocal(ranks, shm.Options{}) {
			engines = append(engines, e)
		}
		return engines
	}
	for _, c := range sweepCases(opt) {
		t.Run(c.Name, func(t *testing.T) { runCase(t, world, opt, &c) })
	}
}

func TestCaseNames(t *testing.T) {
	for _, opt := range []Options{{}, {Light: true}} {
		seen := make(map[string]bool)
		for _, c := range Cases(opt) {
			if seen[c.Name] {
				t.Errorf("two cases are called %s", c.Name)
			}
			seen[c.Name] = true
		}
		t.Logf("light %v: %d cases", opt.Light, len(seen))
	}
}

// faultyEngine does something wrong after every operation.
type faultyEngine struct {
	engine.Engine
	wrong func(calls []engine.Call)
}

func (e faultyEngine) Run(ctx context.Context, seq uint64, calls []engine.Call) error {
	err := e.Engine.Run(ctx, seq, calls)
	if e.Rank() == 1 {
		e.wrong(calls)
	}
	return err
}

// TestSuiteNotices checks that the suite detects an engine that has a side effect besides its result. Both
// ranks' engines are faulty.
func TestSuiteNotices(t *testing.T) {
	flip := func(p unsafe.Pointer) { *(*byte)(p) ^= 1 }
	opt := Options{RankOrder: true, Deadline: time.Minute}
	body := opt.sweep(engine.AllReduce, kernel.Int32, 2, []int{100}, []engine.ReduceOp{engine.Sum}).Body
	for _, c := range []struct {
		name, text string
		wrong      func(calls []engine.Call)
	}{
		{"a wrong bit", "element 99 of 100 of the destination", func(c []engine.Call) { flip(c[0].Dst.At(99)) }},
		{"a changed source", "element 7 of 100 of the source", func(c []engine.Call) { flip(c[0].Src.At(7)) }},
		{"a byte too many", "memory beside", func(c []engine.Call) { flip(c[0].Dst.At(100)) }},
		{"a byte too early", "memory beside", func(c []engine.Call) { flip(c[0].Dst.At(-1)) }},
		{"a changed call", "changed its argument", func(c []engine.Call) { c[0].Src = c[0].Dst }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var engines []engine.Engine
			for _, e := range shm.NewLocal(2, shm.Options{}) {
				engines = append(engines, faultyEngine{e, c.wrong})
			}
			_, err := runBodies(t, engines, opt, &Case{Ranks: 2, Body: body})
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("the suite says %v, want something about %q", err, c.text)
			}
		})
	}
}
