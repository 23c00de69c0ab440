package kernel

func vectorTables(generic *table) []*table {
	// Every arm64 processor that Go runs on has NEON.
	return []*table{neonTable(generic)}
}

// neonTable replaces the floats; integers stay generic.
func neonTable(generic *table) *table {
	t := *generic
	t.path = "neon"
	t.reduce[Float16] = [numOps + 1]reduceFunc{
		Sum: sumFloat16NEON, Prod: prodFloat16NEON, Min: minFloat16NEON, Max: maxFloat16NEON,
	}
	t.scale[Float16], t.scaleAdd[Float16] = scaleFloat16NEON, scaleAddFloat16NEON
	t.reduce[BFloat16] = [numOps + 1]reduceFunc{
		Sum: sumBFloat16NEON, Prod: prodBFloat16NEON, Min: minBFloat16NEON, Max: maxBFloat16NEON,
	}
	t.scale[BFloat16], t.scaleAdd[BFloat16] = scaleBFloat16NEON, scaleAddBFloat16NEON
	t.reduce[Float32] = [numOps + 1]reduceFunc{
		Sum: sumFloat32NEON, Prod: prodFloat32NEON, Min: minFloat32NEON, Max: maxFloat32NEON,
	}
	t.scale[Float32], t.scaleAdd[Float32] = scaleFloat32NEON, scaleAddFloat32NEON
	t.reduce[Float64] = [numOps + 1]reduceFunc{
		Sum: sumFloat64NEON, Prod: prodFloat64NEON, Min: minFloat64NEON, Max: maxFloat64NEON,
	}
	t.scale[Float64], t.scaleAdd[Float64] = scaleFloat64NEON, scaleAddFloat64NEON
	return &t
}
