package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// forEachPath runs f with each path that this machine has.
func forEachPath(t *testing.T, f func(t *testing.T)) {
	for _, table := range tables() {
		t.Run(table.path, func(t *testing.T) {
			before := chosen.Swap(table)
			defer chosen.Store(before)
			f(t)
		})
	}
}

// A call is one exported function with fixed arguments, and the reference for its result.
type call struct {
	name string
	t    DType
	two  bool // reads b
	run  func(dst, a, b unsafe.Pointer, n int)
	want func(a, b uint64) uint64
}

// factors are values that round, overflow, wrap, or are NaN or infinite. Short runs use the
// first ones.
var factors = []float64{
	0.1, -3, math.Float64frombits(0xFFF7FFFFFFFFFFFF), -0x1.8p63, math.Inf(1),
	1, 0, math.Copysign(0, -1), 1e-7, 300, 0x1p-140, 1e30, 0x1.8p64 + 0x1p13, 1e300, math.Inf(-1), math.NaN(),
}

// calls lists every function with every type and operation, and the given factors.
func calls(factors []float64) (list []call) {
	for dt := Int8; dt.Valid(); dt++ {
		for op := Sum; op.Takes(dt); op++ {
			list = append(list, call{
				fmt.Sprint(op, "/", dt), dt, true,
				func(dst, a, b unsafe.Pointer, n int) { Reduce(dst, a, b, n, dt, op) },
				func(a, b uint64) uint64 { return refReduce(dt, op, a, b) },
			})
		}
		for _, x := range factors {
			list = append(list, call{
				fmt.Sprintf("scale %v/%v", x, dt), dt, false,
				func(dst, a, _ unsafe.Pointer, n int) { Scale(dst, a, n, dt, x) },
				func(a, _ uint64) uint64 { return refScale(dt, a, x) },
			}, call{
				fmt.Sprintf("scaleadd %v/%v", x, dt), dt, true,
				func(dst, a, b unsafe.Pointer, n int) { ScaleAdd(dst, a, b, n, dt, x) },
				func(a, b uint64) uint64 { return refScaleAdd(dt, a, b, x) },
			})
		}
	}
	return list
}

// element returns random bits of an element. Tame floats are ordinary numbers; the others
// include special values.
func element(r *rand.Rand, t DType, tame bool) uint64 {
	mantissa := map[DType]int{Float16: 10, BFloat16: 7, Float32: 23, Float64: 52}[t]
	width := 8 * t.Size()
	mask := uint64(1)<<(width-1)<<1 - 1
	sign := r.Uint64() << (width - 1)
	if mantissa == 0 {
		switch r.IntN(4) {
		case 0:
			return (r.Uint64N(5) - 2) & mask // near zero
		case 1:
			return (1<<(width-1) + r.Uint64N(5) - 2) & mask // near the signed limits
		}
		return r.Uint64() & mask
	}
	infinity := mask >> 1 >> mantissa << mantissa
	one := infinity >> 1 >> mantissa << mantissa
	fraction := r.Uint64() >> (64 - mantissa)
	if tame {
		return one ^ fraction | sign&mask
	}
	var bits uint64
	switch r.IntN(8) {
	case 0:
		bits = r.Uint64N(3) // zero and the smallest subnormals
	case 1:
		bits = infinity + r.Uint64N(2) // infinity and a signalling NaN
	case 2:
		bits = infinity | fraction // mostly NaN
	case 3:
		bits = infinity - 1 - r.Uint64N(4) // the largest
	case 4:
		bits = fraction // subnormal
	case 5, 6:
		bits = one ^ fraction // about one: sums round
	default:
		bits = r.Uint64()
	}
	return (bits | sign) & mask
}

// A buffer has guard elements on both sides of n elements, which start at an offset in an
// allocation.
type buffer struct {
	raw           []byte
	size, from, n int
}

const guard = 40

func newBuffer(r *rand.Rand, t DType, offset, n int) buffer {
	tame := r.IntN(3) == 0
	b := buffer{make([]byte, (2*guard+offset+n)*t.Size()), t.Size(), guard + offset, n}
	for i := range 2*guard + offset + n {
		putBits(b.raw, t, i, element(r, t, tame))
	}
	return b
}

func (b buffer) data() []byte            { return b.raw[b.from*b.size : (b.from+b.n)*b.size] }
func (b buffer) pointer() unsafe.Pointer { return unsafe.Pointer(&b.raw[b.from*b.size]) }
func (b buffer) clone() buffer {
	b.raw = append([]byte(nil), b.raw...)
	return b
}

// check runs c with a separate destination, in place in a, and in place in b.
func (c call) check(t *testing.T, r *rand.Rand, n int) {
	t.Helper()
	a, b := newBuffer(r, c.t, r.IntN(9), n), newBuffer(r, c.t, r.IntN(9), n)
	fresh := newBuffer(r, c.t, r.IntN(9), n)
	results := make([]byte, n*c.t.Size())
	for i := range n {
		putBits(results, c.t, i, c.want(getBits(a.data(), c.t, i), getBits(b.data(), c.t, i)))
	}
	for place, target := range []buffer{fresh, a, b} {
		if place == 2 && !c.two {
			continue
		}
		dst, want := target.clone(), target.clone()
		copy(want.data(), results)
		pa, pb := a.pointer(), b.pointer()
		switch place {
		case 1:
			pa = dst.pointer()
		case 2:
			pb = dst.pointer()
		}
		c.run(dst.pointer(), pa, pb, n)
		for i := range len(dst.raw) / dst.size {
			got, want := getBits(dst.raw, c.t, i), getBits(want.raw, c.t, i)
			if got == want {
				continue
			}
			i -= dst.from
			if i < 0 || i >= n {
				t.Fatalf("%s, n %d, target %d: wrote outside, at %d", c.name, n, place, i)
			}
			t.Fatalf("%s, n %d, target %d, element %d: got %#x, want %#x from %#x and %#x", c.name, n, place, i,
				got, want, getBits(a.data(), c.t, i), getBits(b.data(), c.t, i))
		}
	}
}

// TestEveryLength compares every function on every path with the reference, for lengths
// around the vectors' sizes.
func TestEveryLength(t *testing.T) {
	factors := factors
	if testing.Short() {
		factors = factors[:5]
	}
	forEachPath(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		step := 1
		if testing.Short() && Path() == "generic" {
			step = 7 // plain loops, whatever the length
		}
		for _, c := range calls(factors) {
			for n := 0; n < 71; n += step {
				c.check(t, r, n)
			}
		}
	})
}

// TestManyPieces checks lengths beyond the size of a piece.
func TestManyPieces(t *testing.T) {
	forEachPath(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(5, 6))
		for i, c := range calls(factors[:1]) {
			piece := pieceBytes / c.t.Size()
			n := 2*piece + 35
			if testing.Short() {
				if n = piece + 1; i%3 != 0 { // of the calls for each type
					continue
				}
			}
			c.check(t, r, n)
		}
	})
}

// TestHalfPairs combines every float16 and bfloat16 value with some of each kind.
func TestHalfPairs(t *testing.T) {
	factors := factors[:5]
	if testing.Short() {
		factors = factors[:2]
	}
	forEachPath(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 8))
		for _, c := range calls(factors) {
			if c.t.Size() != 2 {
				continue
			}
			a, b := newBuffer(r, c.t, 0, 1<<16), newBuffer(r, c.t, 0, 1<<16)
			dst := a.clone()
			for h := range 1 << 16 {
				putBits(a.data(), c.t, h, uint64(h))
			}
			if !c.two {
				b = a
			}
			c.run(dst.pointer(), a.pointer(), b.pointer(), 1<<16)
			for i := range 1 << 16 {
				x, y := uint64(i), getBits(b.data(), c.t, i)
				if got, want := getBits(dst.data(), c.t, i), c.want(x, y); got != want {
					t.Fatalf("%s of %#x and %#x: got %#x, want %#x", c.name, x, y, got, want)
				}
			}
		}
	})
}

func TestCopy(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{0, 1, 7, 100, pieceBytes - 1, pieceBytes, pieceBytes + 1, 3*pieceBytes + 5} {
		src, dst := newBuffer(r, Uint8, r.IntN(9), n), newBuffer(r, Uint8, r.IntN(9), n)
		want := dst.clone()
		copy(want.data(), src.data())
		Copy(dst.pointer(), src.pointer(), n)
		if string(dst.raw) != string(want.raw) {
			t.Errorf("%d bytes: wrong copy", n)
		}
	}
}

func TestNothing(t *testing.T) {
	for dt := Int8; dt.Valid(); dt++ {
		Reduce(nil, nil, nil, 0, dt, Sum)
		Scale(nil, nil, 0, dt, 2)
		ScaleAdd(nil, nil, nil, 0, dt, 2)
	}
	Copy(nil, nil, 0)
}

func TestNoAllocation(t *testing.T) {
	buf := make([]float64, 3*pieceBytes/8)
	p := unsafe.Pointer(&buf[0])
	forEachPath(t, func(t *testing.T) {
		for _, c := range calls(factors[:1]) {
			n := len(buf) * 8 / c.t.Size()
			// The runtime may allocate something of its own meanwhile: not once for each run.
			if got := testing.AllocsPerRun(3, func() { c.run(p, p, p, n) }); got != 0 {
				t.Errorf("%s allocates %v times", c.name, got)
			}
		}
	})
}
