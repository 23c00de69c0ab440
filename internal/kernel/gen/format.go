package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

type vec = reg.VecVirtual

// shortest is the width in bytes of the registers used for single elements.
const shortest = 16

func newVec(width int) vec {
	if width == shortest {
		return XMM()
	}
	return YMM()
}

func resize(v vec, width int) vec {
	if width == shortest {
		return v.AsX().(vec)
	}
	return v.AsY().(vec)
}

func widthOf(v vec) int { return int(v.Size()) }

// A format is the layout of a type in memory and in registers. One vector in memory is held in
// one or more registers, on which operations work.
type format interface {
	elem() int           // bytes of an element
	bytes(width int) int // bytes of memory per vector
	unroll() int         // vectors in the largest loop
	double() bool        // float64 in registers
	constants(width int) *constants
	factor(k *constants, width int) vec // x, broadcast
	load(k *constants, src Op, width int) []vec
	store(k *constants, values []vec, dst Op)
	round(k *constants, v vec) vec // to the precision of the type, in registers
}

// integers are plain vectors without NaNs.
type integers struct{ size int }

func (f integers) elem() int                         { return f.size }
func (f integers) bytes(width int) int               { return width }
func (f integers) unroll() int                       { return 4 }
func (f integers) double() bool                      { return false }
func (f integers) constants(int) *constants          { return &constants{} }
func (f integers) factor(*constants, int) vec        { panic("integers have no factor") }
func (f integers) round(_ *constants, v vec) vec     { return v }
func (f integers) store(_ *constants, v []vec, p Op) { VMOVDQU(v[0], p) }
func (f integers) load(_ *constants, p Op, w int) []vec {
	if v, ok := p.(vec); ok {
		return []vec{v}
	}
	v := newVec(w)
	VMOVDQU(p, v)
	return []vec{v}
}

type float32s struct{ integers }

func (f float32s) elem() int { return 4 }
func (f float32s) constants(w int) *constants {
	return &constants{nan: broadcastD("nan32", 0x7FC00000, w)}
}
func (f float32s) factor(_ *constants, w int) vec { return factor32(w) }

type float64s struct{ integers }

func (f float64s) elem() int    { return 8 }
func (f float64s) double() bool { return true }
func (f float64s) constants(w int) *constants {
	v := newVec(w)
	VPBROADCASTQ(constant("nan64", U64(0x7FF8000000000000)), v)
	return &constants{nan: v}
}

func (f float64s) factor(_ *constants, w int) vec {
	x, v := XMM(), newVec(w)
	Load(Param("x"), x)
	VPBROADCASTQ(x, v)
	return v
}

// float16 is a float32 in registers, and half as wide in memory. F16C converts and rounds.
type float16 struct{ float32s }

func (f float16) elem() int       { return 2 }
func (f float16) bytes(w int) int { return w / 2 }
func (f float16) load(_ *constants, p Op, w int) []vec {
	v := newVec(w)
	VCVTPH2PS(p, v)
	return []vec{v}
}
func (f float16) store(_ *constants, v []vec, p Op) { VCVTPS2PH(nearestEven, v[0], p) }
func (f float16) round(_ *constants, v vec) vec {
	h, r := newVec(shortest), newVec(widthOf(v))
	VCVTPS2PH(nearestEven, v, h)
	VCVTPH2PS(h, r)
	return r
}

const nearestEven = U8(0)

// bfloat16 is split into its even and its odd elements: no lane is crossed, and each half is
// one shift or mask away from float32.
type bfloat16 struct{ float32s }

func (f bfloat16) elem() int   { return 2 }
func (f bfloat16) unroll() int { return 2 }

func (f bfloat16) constants(w int) *constants {
	k := f.float32s.constants(w)
	k.extra = []vec{
		broadcastD("bfloat16Half", 0x7FFF, w),
		broadcastD("bfloat16Ulp", 1, w),
		broadcastD("bfloat16Mask", 0xFFFF0000, w),
	}
	return k
}

// factor replaces a NaN by the canonical one, because nearest cannot round a NaN whose lower
// bits would carry.
func (f bfloat16) factor(k *constants, w int) vec {
	x := factor32(w)
	canonicalize(f, k, []vec{x})
	return x
}

func (f bfloat16) load(k *constants, p Op, w int) []vec {
	raw := f.float32s.load(k, p, w)[0]
	even, odd := newVec(w), newVec(w)
	VPSLLD(Imm(16), raw, even)
	VPAND(k.extra[2], raw, odd)
	return []vec{even, odd}
}

func (f bfloat16) store(k *constants, v []vec, p Op) {
	even, odd := f.nearest(k, v[0]), f.nearest(k, v[1])
	VPSRLD(Imm(16), even, even)
	VPBLENDW(Imm(0xAA), odd, even, even)
	VMOVDQU(even, p)
}

func (f bfloat16) round(k *constants, v vec) vec {
	r := f.nearest(k, v)
	VPAND(k.extra[2], r, r)
	return r
}

// nearest rounds to the upper half of each lane, to nearest, ties to even: it adds just under
// half a unit, and one more if the unit's bit is odd.
func (f bfloat16) nearest(k *constants, v vec) vec {
	r := newVec(widthOf(v))
	VPSRLD(Imm(16), v, r)
	VPAND(k.extra[1], r, r)
	VPADDD(k.extra[0], r, r)
	VPADDD(v, r, r)
	return r
}

func factor32(w int) vec {
	x, v := XMM(), newVec(w)
	Load(Param("x"), x)
	VCVTSD2SS(x, x, x)
	VPBROADCASTD(x, v)
	return v
}

var pool = map[string]Mem{}

// constant places a value in read-only memory, once for each name.
func constant(name string, v Constant) Mem {
	if _, ok := pool[name]; !ok {
		pool[name] = ConstData(name, v)
	}
	return pool[name]
}

func broadcastD(name string, bits uint32, w int) vec {
	v := newVec(w)
	VPBROADCASTD(constant(name, U32(bits)), v)
	return v
}
