package enginetest

import (
	"math"

	"github.com/tutti-go/tutti/internal/kernel"
)

// class is a kind of input.
type class uint8

const (
	// wild elements are any values of a type: extremes, NaNs with payloads,
	// infinities, both zeros, subnormals, and numbers for which the order of a sum
	// changes the last bits.
	wild class = iota
	// addends are integers whose sum is exact in any order, in every type. The same
	// holds for small multiples of them.
	addends
	// averages are numbers whose average is exact in any order.
	averages
	// factors are numbers whose product is exact in any order.
	factors
)

// A random is a splitmix64 generator: small, and the same on every platform.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9E3779B97F4A7C15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// below returns a number from 0 to n-1.
func (r *random) below(n int) int { return int(r.next() >> 1 % uint64(n)) }

// mix combines several numbers into one seed.
func mix(numbers ...uint64) uint64 {
	var r random
	for _, n := range numbers {
		r = random(r.next() ^ n)
	}
	return r.next()
}

// newInput returns n elements of a rank's source.
func newInput(t kernel.DType, c class, seed uint64, rank, ranks, n int) []byte {
	r := random(mix(seed, uint64(rank)))
	b := newBytes(n * t.Size())
	if t.IsFloat() && c != wild {
		fillExact(b, t, c, ranks, &r)
	} else {
		fillWild(b, t, &r)
	}
	return b
}

// fillWild fills b with any values of type t, extremes and special values among them. The bits depend only on
// the state of r.
func fillWild(b []byte, t kernel.DType, r *random) {
	words := elements[uint64](b)
	for i := range words {
		words[i] = r.next()
	}
	rest := b[len(words)*8:]
	for i, last := 0, r.next(); i < len(rest); i++ {
		rest[i] = byte(last >> (8 * i))
	}
	switch t {
	case kernel.Int8, kernel.Uint8:
		extremes(b, []uint8{0, 1, 0x7F, 0x80, 0xFF}, r)
	case kernel.Int16, kernel.Uint16:
		extremes(elements[uint16](b), []uint16{0, 1, 1<<15 - 1, 1 << 15, 1<<16 - 1}, r)
	case kernel.Int32, kernel.Uint32:
		extremes(elements[uint32](b), []uint32{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 1}, r)
	case kernel.Int64, kernel.Uint64:
		extremes(words, []uint64{0, 1, 1<<63 - 1, 1 << 63, 1<<64 - 1}, r)
	case kernel.Float16:
		wildFloats(elements[uint16](b), 15, 10, r)
	case kernel.BFloat16:
		wildFloats(elements[uint16](b), 127, 7, r)
	case kernel.Float32:
		wildFloats(elements[uint32](b), 127, 23, r)
	case kernel.Float64:
		wildFloats(words, 1023, 52, r)
	}
}

// extremes puts extreme values among random ones.
func extremes[T uint8 | uint16 | uint32 | uint64](b, values []T, r *random) {
	for i := 0; i < len(b); i += 16 {
		b[i] = values[r.below(len(values))]
	}
}

// wildFloats makes floats of random bits. Of every eight elements, one keeps its
// bits, one becomes special, and six are near one, so that their sum has an order.
func wildFloats[T uint16 | uint32 | uint64](b []T, bias, mantissa int, r *random) {
	one := T(bias) << mantissa
	sign := ^(^T(0) >> 1)
	infinite := sign - T(1)<<mantissa
	special := []T{
		infinite, infinite | sign, infinite | 1, infinite | sign | T(5)<<(mantissa-3),
		0, sign, 1, sign | 1, T(1)<<mantissa - 1, T(1) << mantissa, infinite - 1, (infinite - 1) | sign,
		one, one | sign, 0, sign, one,
	}
	for i := range b {
		switch i % 8 {
		case 0:
			b[i] = special[r.below(len(special))]
		case 1:
		default:
			exponent := T(bias-3)<<mantissa + b[i]&7<<mantissa
			b[i] = b[i]&(sign|T(1)<<mantissa-1) | exponent
		}
	}
}

// fillExact fills b with values of type t whose sums and products over all ranks are exact in any
// order of the operands, so that every correct algorithm has the same result.
func fillExact(b []byte, t kernel.DType, c class, ranks int, r *random) {
	values := []float64{1, -1, 2, -2}
	if c != factors {
		values = []float64{0, 1, -1, 2, -2, 4, -4}
	}
	if c == averages {
		// An average multiplies by 1/ranks, rounded. Sums of such multiples of one
		// number are exact in any order.
		for i := range values {
			values[i] *= float64(ranks)
		}
	}
	for i := range len(b) / t.Size() {
		v := values[r.below(len(values))]
		switch t {
		case kernel.Float16:
			elements[uint16](b)[i] = kernel.Float32ToFloat16(float32(v))
		case kernel.BFloat16:
			elements[uint16](b)[i] = kernel.Float32ToBFloat16(float32(v))
		case kernel.Float32:
			elements[uint32](b)[i] = math.Float32bits(float32(v))
		default:
			elements[uint64](b)[i] = math.Float64bits(v)
		}
	}
}
