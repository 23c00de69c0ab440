package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

type namedOp struct {
	name string
	emit operation
}

// A binary operation returns its result in a register of its own.
type binary func(x, y vec) vec

// lift applies op to each register of a vector.
func lift(op binary) operation {
	return func(_ *constants, src [][]vec) (r []vec) {
		for i := range src[0] {
			r = append(r, op(src[0][i], src[1][i]))
		}
		return r
	}
}

func scale(mul binary) operation {
	return func(k *constants, src [][]vec) (r []vec) {
		for _, v := range src[0] {
			r = append(r, mul(v, k.x))
		}
		return r
	}
}

func scaleAdd(f format, mul, add binary) operation {
	return func(k *constants, src [][]vec) (r []vec) {
		for i, v := range src[1] {
			r = append(r, add(src[0][i], f.round(k, mul(v, k.x))))
		}
		return r
	}
}

// simple returns a binary operation of one instruction. The operands are in the assembler's
// order.
func simple(instruction func(y, x, dst Op)) binary {
	return func(x, y vec) vec {
		r := newVec(widthOf(x))
		instruction(y, x, r)
		return r
	}
}

// variadic adapts the instructions that also have AVX-512 forms.
func variadic(instruction func(ops ...Op)) binary {
	return simple(func(y, x, dst Op) { instruction(y, x, dst) })
}

var (
	addPS = variadic(VADDPS)
	addPD = variadic(VADDPD)
	mulPS = variadic(VMULPS)
	mulPD = variadic(VMULPD)

	addB  = variadic(VPADDB)
	minSB = variadic(VPMINSB)
	maxSB = variadic(VPMAXSB)
	minUB = variadic(VPMINUB)
	maxUB = variadic(VPMAXUB)

	addD  = variadic(VPADDD)
	mulD  = variadic(VPMULLD)
	minSD = variadic(VPMINSD)
	maxSD = variadic(VPMAXSD)
	minUD = variadic(VPMINUD)
	maxUD = variadic(VPMAXUD)

	addQ = variadic(VPADDQ)

	addW  = variadic(VPADDW)
	mulW  = variadic(VPMULLW)
	minSW = variadic(VPMINSW)
	maxSW = variadic(VPMAXSW)
	minUW = variadic(VPMINUW)
	maxUW = variadic(VPMAXUW)

	and = simple(VPAND)
	or  = simple(VPOR)
	xor = simple(VPXOR)
)

// The minimum and maximum instructions return their second operand for two zeros and for NaNs.
// The two orders of the operands give different results only then. OR of both results is the
// smaller zero, and a NaN if there was one.

func minPS(x, y vec) vec {
	r, s := variadic(VMINPS)(x, y), variadic(VMINPS)(y, x)
	VPOR(s, r, r)
	return r
}

func minPD(x, y vec) vec {
	r, s := variadic(VMINPD)(x, y), variadic(VMINPD)(y, x)
	VPOR(s, r, r)
	return r
}

// AND of both results is the larger zero, but may lose a NaN.

func maxPS(x, y vec) vec {
	r, s := variadic(VMAXPS)(x, y), variadic(VMAXPS)(y, x)
	VPAND(s, r, r)
	VPOR(unorderedMask(float32s{}, x, y), r, r)
	return r
}

func maxPD(x, y vec) vec {
	r, s := variadic(VMAXPD)(x, y), variadic(VMAXPD)(y, x)
	VPAND(s, r, r)
	VPOR(unorderedMask(float64s{}, x, y), r, r)
	return r
}

// mulB multiplies words: the low byte of a product depends only on the low bytes of its
// factors.
func mulB(x, y vec) vec {
	even := variadic(VPMULLW)(x, y)
	VPSLLW(Imm(8), even, even)
	VPSRLW(Imm(8), even, even)
	xo, yo := newVec(widthOf(x)), newVec(widthOf(x))
	VPSRLW(Imm(8), x, xo)
	VPSRLW(Imm(8), y, yo)
	odd := variadic(VPMULLW)(xo, yo)
	VPSLLW(Imm(8), odd, odd)
	VPOR(odd, even, even)
	return even
}

// mulQ multiplies by halves. The product of the upper halves does not affect the result.
func mulQ(x, y vec) vec {
	xh, yh := newVec(widthOf(x)), newVec(widthOf(x))
	VPSRLQ(Imm(32), x, xh)
	VPSRLQ(Imm(32), y, yh)
	VPMULUDQ(y, xh, xh)
	VPMULUDQ(x, yh, yh)
	VPADDQ(yh, xh, xh)
	VPSLLQ(Imm(32), xh, xh)
	r := variadic(VPMULUDQ)(x, y)
	VPADDQ(xh, r, r)
	return r
}

// pick returns y in the lanes that m marks, and x in the others.
func pick(m, x, y vec) vec {
	r := newVec(widthOf(x))
	VBLENDVPD(m, y, x, r)
	return r
}

func greaterSQ(x, y vec) vec { return variadic(VPCMPGTQ)(x, y) }

// greaterUQ compares as signed, after offsetting both operands by half the range.
func greaterUQ(x, y vec) vec {
	w := widthOf(x)
	flip, xs, ys := newVec(w), newVec(w), newVec(w)
	VPBROADCASTQ(constant("sign64", U64(1<<63)), flip)
	VPXOR(flip, x, xs)
	VPXOR(flip, y, ys)
	return greaterSQ(xs, ys)
}

func minSQ(x, y vec) vec { return pick(greaterSQ(x, y), x, y) }
func maxSQ(x, y vec) vec { return pick(greaterSQ(x, y), y, x) }
func minUQ(x, y vec) vec { return pick(greaterUQ(x, y), x, y) }
func maxUQ(x, y vec) vec { return pick(greaterUQ(x, y), y, x) }
