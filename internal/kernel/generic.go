package kernel

import "unsafe"

// genericTable returns the complete generic path. It is the only path on some processors, and
// the base of the others.
func genericTable() *table {
	t := &table{path: "generic"}
	setInteger[int8](t, Int8)
	setInteger[uint8](t, Uint8)
	setInteger[int16](t, Int16)
	setInteger[uint16](t, Uint16)
	setInteger[int32](t, Int32)
	setInteger[uint32](t, Uint32)
	setInteger[int64](t, Int64)
	setInteger[uint64](t, Uint64)
	setHalf(t, Float16, Float16ToFloat32, Float32ToFloat16)
	setHalf(t, BFloat16, BFloat16ToFloat32, Float32ToBFloat16)
	setFloat[float32](t, Float32)
	setFloat[float64](t, Float64)
	return t
}

// slices1 and slices2 return the arguments of a kernel as slices. The sources are cut to the
// destination's length, so that the compiler can eliminate bounds checks.

func slices1[T any](dst, a *byte, n int) (d, x []T) {
	d = unsafe.Slice((*T)(unsafe.Pointer(dst)), n)
	return d, unsafe.Slice((*T)(unsafe.Pointer(a)), n)[:len(d)]
}

func slices2[T any](dst, a, b *byte, n int) (d, x, y []T) {
	d = unsafe.Slice((*T)(unsafe.Pointer(dst)), n)
	return d, unsafe.Slice((*T)(unsafe.Pointer(a)), n)[:len(d)], unsafe.Slice((*T)(unsafe.Pointer(b)), n)[:len(d)]
}
