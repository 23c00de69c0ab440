package kernel

import "golang.org/x/sys/cpu"

func vectorTables(generic *table) []*table {
	if !cpu.X86.HasAVX2 || !cpu.X86.HasF16C {
		return nil
	}
	return []*table{avx2Table(generic)}
}

// avx2Table replaces all reductions, and the scaling of floats; the scaling of
// integers stays generic.
func avx2Table(generic *table) *table {
	t := *generic
	t.path = "avx2"
	t.reduce = [NumDTypes + 1][numOps + 1]reduceFunc{
		Int8: {
			Sum: sumInt8AVX2, Prod: prodInt8AVX2, Min: minInt8AVX2, Max: maxInt8AVX2,
			And: andInt8AVX2, Or: orInt8AVX2, Xor: xorInt8AVX2,
		},
		Uint8: {
			Sum: sumInt8AVX2, Prod: prodInt8AVX2, Min: minUint8AVX2, Max: maxUint8AVX2,
			And: andInt8AVX2, Or: orInt8AVX2, Xor: xorInt8AVX2,
		},
		Int16: {
			Sum: sumInt16AVX2, Prod: prodInt16AVX2, Min: minInt16AVX2, Max: maxInt16AVX2,
			And: andInt16AVX2, Or: orInt16AVX2, Xor: xorInt16AVX2,
		},
		Uint16: {
			Sum: sumInt16AVX2, Prod: prodInt16AVX2, Min: minUint16AVX2, Max: maxUint16AVX2,
			And: andInt16AVX2, Or: orInt16AVX2, Xor: xorInt16AVX2,
		},
		Int32: {
			Sum: sumInt32AVX2, Prod: prodInt32AVX2, Min: minInt32AVX2, Max: maxInt32AVX2,
			And: andInt32AVX2, Or: orInt32AVX2, Xor: xorInt32AVX2,
		},
		Uint32: {
			Sum: sumInt32AVX2, Prod: prodInt32AVX2, Min: minUint32AVX2, Max: maxUint32AVX2,
			And: andInt32AVX2, Or: orInt32AVX2, Xor: xorInt32AVX2,
		},
		Int64: {
			Sum: sumInt64AVX2, Prod: prodInt64AVX2, Min: minInt64AVX2, Max: maxInt64AVX2,
			And: andInt64AVX2, Or: orInt64AVX2, Xor: xorInt64AVX2,
		},
		Uint64: {
			Sum: sumInt64AVX2, Prod: prodInt64AVX2, Min: minUint64AVX2, Max: maxUint64AVX2,
			And: andInt64AVX2, Or: orInt64AVX2, Xor: xorInt64AVX2,
		},
		Float16:  {Sum: sumFloat16AVX2, Prod: prodFloat16AVX2, Min: minFloat16AVX2, Max: maxFloat16AVX2},
		BFloat16: {Sum: sumBFloat16AVX2, Prod: prodBFloat16AVX2, Min: minBFloat16AVX2, Max: maxBFloat16AVX2},
		Float32:  {Sum: sumFloat32AVX2, Prod: prodFloat32AVX2, Min: minFloat32AVX2, Max: maxFloat32AVX2},
		Float64:  {Sum: sumFloat64AVX2, Prod: prodFloat64AVX2, Min: minFloat64AVX2, Max: maxFloat64AVX2},
	}
	t.scale[Float16], t.scaleAdd[Float16] = scaleFloat16AVX2, scaleAddFloat16AVX2
	t.scale[BFloat16], t.scaleAdd[BFloat16] = scaleBFloat16AVX2, scaleAddBFloat16AVX2
	t.scale[Float32], t.scaleAdd[Float32] = scaleFloat32AVX2, scaleAddFloat32AVX2
	t.scale[Float64], t.scaleAdd[Float64] = scaleFloat64AVX2, scaleAddFloat64AVX2
	return &t
}
