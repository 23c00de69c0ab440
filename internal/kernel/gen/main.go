// Command gen writes the amd64 kernels of package kernel. go generate in that package's
// directory runs it.
package main

import . "github.com/mmcloughlin/avo/build"

func main() {
	ConstraintExpr("amd64")
	for _, k := range kernels() {
		k.emit()
	}
	Generate()
}

// kernels lists the functions to generate. Signed and unsigned integers share a kernel if their
// results have the same bits.
func kernels() []kernel {
	var list []kernel
	reduce := func(typeName string, f format, ops ...namedOp) {
		for _, op := range ops {
			list = append(list, kernel{name: op.name + typeName, format: f, sources: 2, op: op.emit})
		}
	}
	float := func(typeName string, f format, sum, prod, minimum, maximum binary) {
		reduce(typeName, f,
			namedOp{"sum", lift(sum)}, namedOp{"prod", lift(prod)},
			namedOp{"min", lift(minimum)}, namedOp{"max", lift(maximum)})
		list = append(
			list,
			kernel{name: "scale" + typeName, format: f, sources: 1, factor: true, op: scale(prod)},
			kernel{name: "scaleAdd" + typeName, format: f, sources: 2, factor: true, op: scaleAdd(f, prod, sum)},
		)
	}
	float("Float16", float16{}, addPS, mulPS, minPS, maxPS)
	float("BFloat16", bfloat16{}, addPS, mulPS, minPS, maxPS)
	float("Float32", float32s{}, addPS, mulPS, minPS, maxPS)
	float("Float64", float64s{}, addPD, mulPD, minPD, maxPD)
	integer := func(typeName string, f format, sum, prod, minimum, maximum binary) {
		reduce(typeName, f,
			namedOp{"sum", lift(sum)}, namedOp{"prod", lift(prod)},
			namedOp{"min", lift(minimum)}, namedOp{"max", lift(maximum)},
			namedOp{"and", lift(and)}, namedOp{"or", lift(or)}, namedOp{"xor", lift(xor)})
	}
	integer("Int8", integers{1}, addB, mulB, minSB, maxSB)
	reduce("Uint8", integers{1}, namedOp{"min", lift(minUB)}, namedOp{"max", lift(maxUB)})
	integer("Int16", integers{2}, addW, mulW, minSW, maxSW)
	reduce("Uint16", integers{2}, namedOp{"min", lift(minUW)}, namedOp{"max", lift(maxUW)})
	integer("Int32", integers{4}, addD, mulD, minSD, maxSD)
	reduce("Uint32", integers{4}, namedOp{"min", lift(minUD)}, namedOp{"max", lift(maxUD)})
	integer("Int64", integers{8}, addQ, mulQ, minSQ, maxSQ)
	reduce("Uint64", integers{8}, namedOp{"min", lift(minUQ)}, namedOp{"max", lift(maxUQ)})
	return list
}
