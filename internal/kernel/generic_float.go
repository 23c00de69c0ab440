package kernel

import (
	"math"
)

type float interface{ float32 | float64 }

func setFloat[T float](t *table, dt DType) {
	t.reduce[dt] = [numOps + 1]reduceFunc{
		Sum: sumFloat[T], Prod: prodFloat[T], Min: minFloat[T], Max: maxFloat[T],
	}
	t.scale[dt] = scaleFloat[T]
	t.scaleAdd[dt] = scaleAddFloat[T]
}

// canonical returns x, or the canonical NaN if x is a NaN.
func canonical[T float](x T) T {
	if x != x {
		return T(math.Float64frombits(nanFloat64))
	}
	return x
}

func sumFloat[T float](dst, a, b *byte, n int) {
	d, x, y := slices2[T](dst, a, b, n)
	for i := range d {
		d[i] = canonical(x[i] + y[i])
	}
}

func prodFloat[T float](dst, a, b *byte, n int) {
	d, x, y := slices2[T](dst, a, b, n)
	for i := range d {
		d[i] = canonical(x[i] * y[i])
	}
}

// Go's min and max order the zeros and propagate NaN, as the package specifies.

func minFloat[T float](dst, a, b *byte, n int) {
	d, x, y := slices2[T](dst, a, b, n)
	for i := range d {
		d[i] = canonical(min(x[i], y[i]))
	}
}

func maxFloat[T float](dst, a, b *byte, n int) {
	d, x, y := slices2[T](dst, a, b, n)
	for i := range d {
		d[i] = canonical(max(x[i], y[i]))
	}
}

func scaleFloat[T float](dst, a *byte, n int, x float64) {
	d, y := slices1[T](dst, a, n)
	factor := T(x)
	for i := range d {
		d[i] = canonical(y[i] * factor)
	}
}

// The conversion of the product keeps the compiler from fusing it with the sum.
func scaleAddFloat[T float](dst, a, b *byte, n int, x float64) {
	d, y, z := slices2[T](dst, a, b, n)
	factor := T(x)
	for i := range d {
		d[i] = canonical(y[i] + T(z[i]*factor))
	}
}
