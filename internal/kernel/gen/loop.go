package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// All kernels use AVX2 and F16C.
const (
	suffix = "AVX2"
	width  = 32 // bytes of a vector
)

// A kernel is one assembly function. All kernels have the same loops, and differ in format and
// op.
type kernel struct {
	name    string
	format  format
	sources int  // 1: a; 2: a and b
	factor  bool // takes x
	op      operation
}

// An operation emits the computation of one step in registers. k holds for the whole function.
type operation func(k *constants, src [][]vec) []vec

// constants are registers that keep their values through the whole function.
type constants struct {
	nan, x vec
	extra  []vec // used by the format
}

// at returns the constants for vectors of another width.
func (k *constants) at(width int) *constants {
	c := &constants{}
	if k.nan != nil {
		c.nan = resize(k.nan, width)
	}
	if k.x != nil {
		c.x = resize(k.x, width)
	}
	for _, v := range k.extra {
		c.extra = append(c.extra, resize(v, width))
	}
	return c
}

// emit writes three loops: over several vectors, one vector, and one element. The last loop
// runs the same instructions on the lowest lane of the shortest registers, so that every
// length and alignment works.
func (kn kernel) emit() {
	signature := "dst, a *byte, n int"
	if kn.sources == 2 {
		signature = "dst, a, b *byte, n int"
	}
	if kn.factor {
		signature += ", x float64"
	}
	TEXT(kn.name+suffix, attr.NOSPLIT, "func("+signature+")")
	Pragma("noescape")

	dst := Load(Param("dst"), GP64())
	src := []reg.Register{Load(Param("a"), GP64())}
	if kn.sources == 2 {
		src = append(src, Load(Param("b"), GP64()))
	}
	n := Load(Param("n"), GP64())
	k := kn.format.constants(width)
	if kn.factor {
		k.x = kn.format.factor(k, width)
	}

	vector := kn.format.bytes(width) // bytes of memory per vector
	lanes := vector / kn.format.elem()
	unroll := kn.format.unroll()
	advance := func(bytes, elements int) {
		for _, p := range src {
			ADDQ(Imm(uint64(bytes)), p)
		}
		ADDQ(Imm(uint64(bytes)), dst)
		SUBQ(Imm(uint64(elements)), n)
	}
	// compute leaves the results of count vectors in registers. Their NaNs are not canonical
	// yet.
	compute := func(count int) (results [][]vec) {
		for u := range count {
			var operands [][]vec
			for _, p := range src {
				operands = append(operands, kn.format.load(k, Mem{Base: p, Disp: u * vector}, width))
			}
			results = append(results, kn.op(k, operands))
		}
		return results
	}
	var slow []func()
	// finish stores the results. NaNs are rare, so it checks all vectors at once and replaces
	// NaNs out of line.
	finish := func(label string, results [][]vec) {
		if k.nan != nil {
			branchIfNaN(kn.format, results, LabelRef("nan"+label))
			Label("store" + label)
			slow = append(slow, func() {
				Label("nan" + label)
				for _, values := range results {
					canonicalize(kn.format, k, values)
				}
				JMP(LabelRef("store" + label))
			})
		}
		for u, values := range results {
			kn.format.store(k, values, Mem{Base: dst, Disp: u * vector})
		}
	}
	for _, loop := range []struct {
		label, next string
		count       int
	}{{"blocks", "vectors", unroll}, {"vectors", "elements", 1}} {
		Label(loop.label)
		CMPQ(n, Imm(uint64(loop.count*lanes)))
		JLT(LabelRef(loop.next))
		finish(fmt.Sprint(loop.count), compute(loop.count))
		advance(loop.count*vector, loop.count*lanes)
		JMP(LabelRef(loop.label))
	}

	Label("elements")
	TESTQ(n, n)
	JLE(LabelRef("done"))
	low := k.at(shortest)
	var operands [][]vec
	for _, p := range src {
		operands = append(operands, kn.format.load(low, loadElement(p, kn.format.elem()), shortest))
	}
	result := kn.op(low, operands)
	if k.nan != nil {
		canonicalize(kn.format, low, result)
	}
	raw := XMM()
	kn.format.store(low, result, raw)
	storeElement(raw, dst, kn.format.elem())
	advance(kn.format.elem(), 1)
	JMP(LabelRef("elements"))

	Label("done")
	VZEROUPPER()
	RET()
	for _, f := range slow {
		f()
	}
}

// loadElement emits the load of one element of size bytes at p into a vector register.
func loadElement(p reg.Register, size int) vec {
	m, x := Mem{Base: p}, XMM()
	switch size {
	case 1, 2:
		r := GP32()
		if size == 1 {
			MOVBLZX(m, r)
		} else {
			MOVWLZX(m, r)
		}
		VMOVD(r, x)
	case 4:
		VMOVD(m, x)
	case 8:
		VMOVQ(m, x)
	}
	return x
}

// storeElement emits the store of the lowest size bytes of x at p.
func storeElement(x vec, p reg.Register, size int) {
	m := Mem{Base: p}
	switch size {
	case 1, 2:
		r := GP32()
		VMOVD(x, r)
		if size == 1 {
			MOVB(r.As8(), m)
		} else {
			MOVW(r.As16(), m)
		}
	case 4:
		VMOVD(x, m)
	case 8:
		VMOVQ(x, m)
	}
}
