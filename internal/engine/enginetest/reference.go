package enginetest

import (
	"math"
	"slices"

	"github.com/tutti-go/tutti/internal/engine"
	"github.com/tutti-go/tutti/internal/kernel"
)

// reduce is the sequential reference: it combines one source per rank in rank
// order. scales are the ranks' factors for PreMul.
func reduce(t kernel.DType, red engine.ReduceOp, scales []float64, in [][]byte) []byte {
	if len(in) == 1 && red != engine.PreMul && red != engine.Avg {
		return in[0] // nothing is computed, so a NaN keeps its payload
	}
	switch t {
	case kernel.Int8:
		return foldIntegers[int8](red, in)
	case kernel.Uint8:
		return foldIntegers[uint8](red, in)
	case kernel.Int16:
		return foldIntegers[int16](red, in)
	case kernel.Uint16:
		return foldIntegers[uint16](red, in)
	case kernel.Int32:
		return foldIntegers[int32](red, in)
	case kernel.Uint32:
		return foldIntegers[uint32](red, in)
	case kernel.Int64:
		return foldIntegers[int64](red, in)
	case kernel.Uint64:
		return foldIntegers[uint64](red, in)
	case kernel.Float16:
		return foldHalves(kernel.Float16ToFloat32, kernel.Float32ToFloat16, red, scales, in)
	case kernel.BFloat16:
		return foldHalves(kernel.BFloat16ToFloat32, kernel.Float32ToBFloat16, red, scales, in)
	case kernel.Float32:
		return foldFloats(math.Float32frombits(0x7FC00000), red, scales, in)
	default:
		return foldFloats(math.Float64frombits(0x7FF8000000000000), red, scales, in)
	}
}

type integer interface {
	int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64
}

// foldIntegers combines one source per rank in rank order; overflow wraps.
func foldIntegers[T integer](red engine.ReduceOp, in [][]byte) []byte {
	out := newBytes(len(in[0]))
	acc := elements[T](out)
	for rank := range in {
		b := elements[T](in[rank])
		switch {
		case rank == 0:
			copy(acc, b)
		case red == engine.Prod:
			for i, x := range b {
				acc[i] *= x
			}
		case red == engine.Min:
			for i, x := range b {
				acc[i] = min(acc[i], x)
			}
		case red == engine.Max:
			for i, x := range b {
				acc[i] = max(acc[i], x)
			}
		case red == engine.And:
			for i, x := range b {
				acc[i] &= x
			}
		case red == engine.Or:
			for i, x := range b {
				acc[i] |= x
			}
		case red == engine.Xor:
			for i, x := range b {
				acc[i] ^= x
			}
		default:
			for i, x := range b {
				acc[i] += x
			}
		}
	}
	return out
}

type float interface{ float32 | float64 }

// factorOf returns the factor of a rank's elements, and whether there is one.
// Without a factor no product is formed, because 1*x would change the NaN x.
func factorOf(red engine.ReduceOp, scales []float64, rank, ranks int) (float64, bool) {
	switch red {
	case engine.PreMul:
		return scales[rank], true
	case engine.Avg:
		return 1 / float64(ranks), true
	}
	return 1, false
}

// The conversions T(a*b) keep the compiler from fusing a product and a sum.

// foldFloats combines one source per rank in rank order, each multiplied by its factor first, and replaces
// every NaN of the result by nan.
func foldFloats[T float](nan T, red engine.ReduceOp, scales []float64, in [][]byte) []byte {
	out := newBytes(len(in[0]))
	acc := elements[T](out)
	scaled := make([]T, len(acc))
	for rank := range in {
		b := elements[T](in[rank])
		if f, ok := factorOf(red, scales, rank, len(in)); ok {
			for i, x := range b {
				scaled[i] = T(x * T(f))
			}
			b = scaled
		}
		if rank == 0 {
			copy(acc, b)
			continue
		}
		combine(acc, b, red)
	}
	for i, x := range acc {
		if x != x {
			acc[i] = nan
		}
	}
	return out
}

// foldHalves combines 16-bit floats in rank order: it computes in float32 and rounds after every step.
func foldHalves(
	widen func(uint16) float32, round func(float32) uint16, red engine.ReduceOp, scales []float64, in [][]byte,
) []byte {
	acc := make([]float32, len(in[0])/2)
	next := slices.Clone(acc)
	for rank := range in {
		b := elements[uint16](in[rank])
		for i, h := range b {
			next[i] = widen(h)
		}
		if f, ok := factorOf(red, scales, rank, len(in)); ok {
			for i, x := range next {
				next[i] = widen(round(float32(x * float32(f))))
			}
		}
		if rank == 0 {
			copy(acc, next)
			continue
		}
		combine(acc, next, red)
		for i, x := range acc {
			acc[i] = widen(round(x))
		}
	}
	out := newBytes(len(in[0]))
	for i, x := range acc {
		elements[uint16](out)[i] = round(x)
	}
	return out
}

// combine adds one more source to acc.
func combine[T float](acc, b []T, red engine.ReduceOp) {
	switch red {
	case engine.Prod:
		for i, x := range b {
			acc[i] = T(acc[i] * x)
		}
	case engine.Min:
		for i, x := range b {
			acc[i] = lesser(acc[i], x)
		}
	case engine.Max:
		for i, x := range b {
			acc[i] = -lesser(-acc[i], -x)
		}
	default:
		for i, x := range b {
			acc[i] += x
		}
	}
}

// lesser returns the smaller of two numbers; -0 is less than +0. It returns NaN if
// one of them is NaN.
func lesser[T float](a, b T) T {
	switch {
	case a != a || a < b:
		return a
	case a == b && math.Signbit(float64(a)):
		return a
	}
	return b
}
