package kernel

import (
	"math"
)

type integer interface {
	int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64
}

func setInteger[T integer](t *table, dt DType) {
	t.reduce[dt] = [numOps + 1]reduceFunc{
		Sum: sumInteger[T], Prod: prodInteger[T], Min: minInteger[T], Max: maxInteger[T],
		And: andInteger[T], Or: orInteger[T], Xor: xorInteger[T],
	}
	t.scale[dt] = scaleInteger[T]
	t.scaleAdd[dt] = scaleAddInteger[T]
}

func sumInteger[T integer](dst, a, b *byte, n int) {
	d, x, y := slices2[T](dst, a, b, n)
	for i := range d {
		d[i] = x[i] + y[i]
	}
}

func prodInteger[T integer](dst, a, b *byte, n int) {
	d, x, y := slices2[T](dst, a, b, n)
	for i := range d {
		d[i] = x[i] * y[i]
	}
}

func minInteger[T integer](dst, a, b *byte, n int) {
	d, x, y := slices2[T](dst, a, b, n)
	for i := range d {
		d[i] = min(x[i], y[i])
	}
}

func maxInteger[T integer](dst, a, b *byte, n int) {
	d, x, y := slices2[T](dst, a, b, n)
	for i := range d {
		d[i] = max(x[i], y[i])
	}
}

func andInteger[T integer](dst, a, b *byte, n int) {
	d, x, y := slices2[T](dst, a, b, n)
	for i := range d {
		d[i] = x[i] & y[i]
	}
}

func orInteger[T integer](dst, a, b *byte, n int) {
	d, x, y := slices2[T](dst, a, b, n)
	for i := range d {
		d[i] = x[i] | y[i]
	}
}

func xorInteger[T integer](dst, a, b *byte, n int) {
	d, x, y := slices2[T](dst, a, b, n)
	for i := range d {
		d[i] = x[i] ^ y[i]
	}
}

func scaleInteger[T integer](dst, a *byte, n int, x float64) {
	d, y := slices1[T](dst, a, n)
	factor := T(wrap(x))
	for i := range d {
		d[i] = y[i] * factor
	}
}

func scaleAddInteger[T integer](dst, a, b *byte, n int, x float64) {
	d, y, z := slices2[T](dst, a, b, n)
	factor := T(wrap(x))
	for i := range d {
		d[i] = y[i] + z[i]*factor
	}
}

// wrap truncates x toward zero and returns its lowest 64 bits in two's
// complement. Go's own conversion leaves values beyond int64 to the machine.
func wrap(x float64) uint64 {
	if math.Abs(x) < 1<<63 {
		return uint64(int64(x))
	}
	bits := math.Float64bits(x)
	exponent := int(bits >> 52 & 0x7FF)
	if exponent == 0x7FF {
		return 0
	}
	magnitude := (bits&(1<<52-1) | 1<<52) << (exponent - 1075)
	if x < 0 {
		return -magnitude
	}
	return magnitude
}
