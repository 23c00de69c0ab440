package kernel

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"sync"
)

// The reference computes one element at a time, on its bits, and shares no code with the
// package. Integers are computed as big.Int, floats in float64. The 16-bit floats are rounded
// by search.

func getBits(p []byte, t DType, i int) uint64 {
	switch t.Size() {
	case 1:
		return uint64(p[i])
	case 2:
		return uint64(binary.NativeEndian.Uint16(p[2*i:]))
	case 4:
		return uint64(binary.NativeEndian.Uint32(p[4*i:]))
	default:
		return binary.NativeEndian.Uint64(p[8*i:])
	}
}

func putBits(p []byte, t DType, i int, bits uint64) {
	switch t.Size() {
	case 1:
		p[i] = uint8(bits)
	case 2:
		binary.NativeEndian.PutUint16(p[2*i:], uint16(bits))
	case 4:
		binary.NativeEndian.PutUint32(p[4*i:], uint32(bits))
	default:
		binary.NativeEndian.PutUint64(p[8*i:], bits)
	}
}

// refReduce combines the bits of two elements: integers exactly, and floats in float64, rounded
// once.
func refReduce(t DType, op Op, a, b uint64) uint64 {
	if !t.IsFloat() {
		x, y := refInteger(t, a), refInteger(t, b)
		switch {
		case op == Sum:
			x.Add(x, y)
		case op == Prod:
			x.Mul(x, y)
		case op == And:
			x.And(x, y)
		case op == Or:
			x.Or(x, y)
		case op == Xor:
			x.Xor(x, y)
		case op == Min && y.Cmp(x) < 0, op == Max && y.Cmp(x) > 0:
			x = y
		}
		return refWrap(t, x)
	}
	x, y := refFloat(t, a), refFloat(t, b)
	switch op {
	case Sum:
		return refRound(t, x+y)
	case Prod:
		return refRound(t, x*y)
	}
	if math.IsNaN(x) || math.IsNaN(y) {
		return refRound(t, math.NaN())
	}
	smaller := x < y || x == y && math.Signbit(x)
	if smaller == (op == Min) {
		return a
	}
	return b
}

func refScale(t DType, a uint64, x float64) uint64 {
	if !t.IsFloat() {
		v := refInteger(t, a)
		return refWrap(t, v.Mul(v, refFactor(x)))
	}
	if t != Float64 {
		x = float64(float32(x))
	}
	return refRound(t, refFloat(t, a)*x)
}

func refScaleAdd(t DType, a, b uint64, x float64) uint64 {
	return refReduce(t, Sum, a, refScale(t, b, x))
}

func refInteger(t DType, bits uint64) *big.Int {
	v := new(big.Int).SetUint64(bits)
	signed := t == Int8 || t == Int16 || t == Int32 || t == Int64
	if width := uint(8 * t.Size()); signed && bits>>(width-1) == 1 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), width))
	}
	return v
}

func refWrap(t DType, v *big.Int) uint64 {
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(8*t.Size()))
	return new(big.Int).Mod(v, modulus).Uint64() // Mod is Euclidean: never negative
}

func refFactor(x float64) *big.Int {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return new(big.Int)
	}
	v, _ := big.NewFloat(x).Int(nil)
	return v
}

// refFloat returns the value of an element as a float64, which can represent all of them.
func refFloat(t DType, bits uint64) float64 {
	switch t {
	case Float64:
		return math.Float64frombits(bits)
	case Float32:
		return float64(math.Float32frombits(uint32(bits)))
	case Float16:
		return refHalf(uint16(bits), 5)
	default:
		return refHalf(uint16(bits), 8)
	}
}

var refNaN = [...]uint64{Float16: 0x7E00, BFloat16: 0x7FC0, Float32: 0x7FC00000, Float64: 0x7FF8000000000000}

// refRound rounds a result to the type. x is exact or correctly rounded to float64. float64 has
// more than twice the precision of float32, so rounding twice equals rounding once.
func refRound(t DType, x float64) uint64 {
	if math.IsNaN(x) {
		return refNaN[t]
	}
	switch t {
	case Float64:
		return math.Float64bits(x)
	case Float32:
		return uint64(math.Float32bits(float32(x)))
	case Float16:
		return uint64(refToHalf(float64(float32(x)), 5))
	default:
		return uint64(refToHalf(float64(float32(x)), 8))
	}
}

// refHalf decodes a 16-bit float with the given number of exponent bits.
func refHalf(h uint16, exponentBits int) float64 {
	mantissaBits := 15 - exponentBits
	bias := 1<<(exponentBits-1) - 1
	exponent := int(h&0x7FFF) >> mantissaBits
	mantissa := int(h) & (1<<mantissaBits - 1)
	var x float64
	switch {
	case exponent == 1<<exponentBits-1 && mantissa != 0:
		return math.NaN()
	case exponent == 1<<exponentBits-1:
		x = math.Inf(1)
	case exponent == 0:
		x = math.Ldexp(float64(mantissa), 1-bias-mantissaBits)
	default:
		x = math.Ldexp(float64(mantissa+1<<mantissaBits), exponent-bias-mantissaBits)
	}
	if h >= 0x8000 {
		return -x
	}
	return x
}

// halfValues lists the non-negative finite values of a 16-bit float in order; the index of a
// value is its bits. One more value, which would follow the largest, stands for infinity:
// numbers closer to it than to the largest value overflow.
func halfValues(exponentBits int) []float64 {
	infinity := (1<<exponentBits - 1) << (15 - exponentBits)
	values := make([]float64, infinity+1)
	for h := range infinity {
		values[h] = refHalf(uint16(h), exponentBits)
	}
	values[infinity] = 2*values[infinity-1] - values[infinity-2]
	return values
}

var (
	float16Values  = sync.OnceValue(func() []float64 { return halfValues(5) })
	bfloat16Values = sync.OnceValue(func() []float64 { return halfValues(8) })
)

// refToHalf rounds x by search among all values.
func refToHalf(x float64, exponentBits int) uint16 {
	values := float16Values()
	if exponentBits == 8 {
		values = bfloat16Values()
	}
	sign := uint16(0)
	if math.Signbit(x) {
		sign, x = 0x8000, -x
	}
	i, found := slices.BinarySearch(values, x)
	if i == len(values) {
		i--
	} else if !found {
		below, above := x-values[i-1], values[i]-x
		if below < above || below == above && i%2 == 1 {
			i--
		}
	}
	return sign | uint16(i)
}
