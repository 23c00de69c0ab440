package kernel

// setHalf fills in a 16-bit type that is computed in float32. load and store convert; store
// also rounds and makes NaNs canonical.
func setHalf(t *table, dt DType, load func(uint16) float32, store func(float32) uint16) {
	reduce := func(op func(x, y float32) float32) reduceFunc {
		return func(dst, a, b *byte, n int) {
			d, x, y := slices2[uint16](dst, a, b, n)
			for i := range d {
				d[i] = store(op(load(x[i]), load(y[i])))
			}
		}
	}
	t.reduce[dt] = [numOps + 1]reduceFunc{
		Sum:  reduce(func(x, y float32) float32 { return x + y }),
		Prod: reduce(func(x, y float32) float32 { return x * y }),
		Min:  reduce(func(x, y float32) float32 { return min(x, y) }),
		Max:  reduce(func(x, y float32) float32 { return max(x, y) }),
	}
	t.scale[dt] = func(dst, a *byte, n int, x float64) {
		d, y := slices1[uint16](dst, a, n)
		factor := float32(x)
		for i := range d {
			d[i] = store(load(y[i]) * factor)
		}
	}
	t.scaleAdd[dt] = func(dst, a, b *byte, n int, x float64) {
		d, y, z := slices2[uint16](dst, a, b, n)
		factor := float32(x)
		for i := range d {
			product := load(store(load(z[i]) * factor))
			d[i] = store(load(y[i]) + product)
		}
	}
}
