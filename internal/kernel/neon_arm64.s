#include "textflag.h"

// The assembler has no vector floating-point arithmetic and no numbered
// registers in macros: these instructions are encoded by hand. m and n are the
// sources (d = n op m), d is the destination.

#define FADD4S(m, n, d)  WORD $(0x4E20D400 | m<<16 | n<<5 | d) // fadd  vd.4s, vn.4s, vm.4s
#define FMUL4S(m, n, d)  WORD $(0x6E20DC00 | m<<16 | n<<5 | d) // fmul  vd.4s, vn.4s, vm.4s
#define FMIN4S(m, n, d)  WORD $(0x4EA0F400 | m<<16 | n<<5 | d) // fmin  vd.4s, vn.4s, vm.4s
#define FMAX4S(m, n, d)  WORD $(0x4E20F400 | m<<16 | n<<5 | d) // fmax  vd.4s, vn.4s, vm.4s
#define FCMEQ4S(m, n, d) WORD $(0x4E20E400 | m<<16 | n<<5 | d) // fcmeq vd.4s, vn.4s, vm.4s

#define FADD2D(m, n, d)  WORD $(0x4E60D400 | m<<16 | n<<5 | d) // fadd  vd.2d, vn.2d, vm.2d
#define FMUL2D(m, n, d)  WORD $(0x6E60DC00 | m<<16 | n<<5 | d) // fmul  vd.2d, vn.2d, vm.2d
#define FMIN2D(m, n, d)  WORD $(0x4EE0F400 | m<<16 | n<<5 | d) // fmin  vd.2d, vn.2d, vm.2d
#define FMAX2D(m, n, d)  WORD $(0x4E60F400 | m<<16 | n<<5 | d) // fmax  vd.2d, vn.2d, vm.2d
#define FCMEQ2D(m, n, d) WORD $(0x4E60E400 | m<<16 | n<<5 | d) // fcmeq vd.2d, vn.2d, vm.2d

#define FCVTL(n, d)  WORD $(0x0E217800 | n<<5 | d) // fcvtl  vd.4s, vn.4h
#define FCVTL2(n, d) WORD $(0x4E217800 | n<<5 | d) // fcvtl2 vd.4s, vn.8h
#define FCVTN(n, d)  WORD $(0x0E216800 | n<<5 | d) // fcvtn  vd.4h, vn.4s
#define FCVTN2(n, d) WORD $(0x4E216800 | n<<5 | d) // fcvtn2 vd.8h, vn.4s

#define AND(m, n, d)   WORD $(0x4E201C00 | m<<16 | n<<5 | d) // and  vd.16b, vn.16b, vm.16b
#define BIF(m, n, d)   WORD $(0x6EE01C00 | m<<16 | n<<5 | d) // bif  vd.16b, vn.16b, vm.16b
#define ADD4S(m, n, d) WORD $(0x4EA08400 | m<<16 | n<<5 | d) // add  vd.4s, vn.4s, vm.4s
#define SHL16(n, d)    WORD $(0x4F305400 | n<<5 | d)         // shl  vd.4s, vn.4s, #16
#define USHR16(n, d)   WORD $(0x6F300400 | n<<5 | d)         // ushr vd.4s, vn.4s, #16
#define SRI16(n, d)    WORD $(0x6F304400 | n<<5 | d)         // sri  vd.4s, vn.4s, #16

// Registers: R0 dst, R1 a, R2 b, R3 n. V0-V3 hold a and the results, V4-V7 b,
// V16-V19 are scratch. Constants: V31 the canonical NaN, V30 x, and for
// bfloat16 V29 just under half a unit, V28 one unit, V27 the mask of odd
// elements.

#define ARGS2 \
	MOVD dst+0(FP), R0; \
	MOVD a+8(FP), R1;   \
	MOVD b+16(FP), R2;  \
	MOVD n+24(FP), R3

#define ARGS1 \
	MOVD dst+0(FP), R0; \
	MOVD a+8(FP), R1;   \
	MOVD n+16(FP), R3

#define CONST4S(bits, v) \
	MOVW $bits, R4; \
	VDUP R4, v

#define NAN4S CONST4S(0x7FC00000, V31.S4)

#define NAN2D \
	MOVD $0x7FF8000000000000, R4; \
	VDUP R4, V31.D2

#define BFLOAT16 \
	NAN4S;                       \
	CONST4S(0x7FFF, V29.S4);     \
	CONST4S(1, V28.S4);          \
	CONST4S(0xFFFF0000, V27.S4)

#define X4S(x) \
	FMOVD  x, F30;   \
	FCVTDS F30, F30; \
	VDUP   V30.S[0], V30.S4

#define X2D(x) \
	FMOVD x, F30; \
	VDUP  V30.D[0], V30.D2

// Where a number is not equal to itself, the canonical NaN is inserted.

#define CANON4S(d) \
	FCMEQ4S(d, d, 16); \
	BIF(16, 31, d)

#define CANON2D(d) \
	FCMEQ2D(d, d, 16); \
	BIF(16, 31, d)

// Loading and storing: a block of several vectors, and one element in the
// lowest lane.

#define LOADA_PLAIN VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]
#define LOADB_PLAIN VLD1.P 64(R2), [V4.B16, V5.B16, V6.B16, V7.B16]
#define STORE_PLAIN VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0)

#define LOADA1_4S FMOVS.P 4(R1), F0
#define LOADB1_4S FMOVS.P 4(R2), F4
#define STORE1_4S FMOVS.P F0, 4(R0)
#define LOADA1_2D FMOVD.P 8(R1), F0
#define LOADB1_2D FMOVD.P 8(R2), F4
#define STORE1_2D FMOVD.P F0, 8(R0)

#define LOADA_FLOAT16 \
	VLD1.P 32(R1), [V16.B16, V17.B16]; \
	FCVTL(16, 0); FCVTL2(16, 1); FCVTL(17, 2); FCVTL2(17, 3)
#define LOADB_FLOAT16 \
	VLD1.P 32(R2), [V16.B16, V17.B16]; \
	FCVTL(16, 4); FCVTL2(16, 5); FCVTL(17, 6); FCVTL2(17, 7)
#define STORE_FLOAT16 \
	FCVTN(0, 16); FCVTN2(1, 16); FCVTN(2, 17); FCVTN2(3, 17); \
	VST1.P [V16.B16, V17.B16], 32(R0)
#define LOADA1_FLOAT16 \
	VLD1.P 2(R1), V16.H[0]; \
	FCVTL(16, 0)
#define LOADB1_FLOAT16 \
	VLD1.P 2(R2), V16.H[0]; \
	FCVTL(16, 4)
#define STORE1_FLOAT16 \
	FCVTN(0, 16); \
	VST1.P V16.H[0], 2(R0)
#define ROUND_FLOAT16(d) \
	FCVTN(d, 16); FCVTL(16, d)

// bfloat16 is split into even and odd elements, each one shift or mask
// away from float32.
#define LOADA_BFLOAT16 \
	VLD1.P 32(R1), [V16.B16, V17.B16]; \
	SHL16(16, 0); AND(27, 16, 1); SHL16(17, 2); AND(27, 17, 3)
#define LOADB_BFLOAT16 \
	VLD1.P 32(R2), [V16.B16, V17.B16]; \
	SHL16(16, 4); AND(27, 16, 5); SHL16(17, 6); AND(27, 17, 7)
#define NEAREST_BFLOAT16(d) \
	USHR16(d, 16); AND(28, 16, 16); ADD4S(29, 16, 16); ADD4S(16, d, d)
#define ROUND_BFLOAT16(d) \
	NEAREST_BFLOAT16(d); AND(27, d, d)
#define STORE_BFLOAT16 \
	NEAREST_BFLOAT16(0); NEAREST_BFLOAT16(1); NEAREST_BFLOAT16(2); NEAREST_BFLOAT16(3); \
	SRI16(0, 1); SRI16(2, 3); \
	VMOV V3.B16, V2.B16; \
	VST1.P [V1.B16, V2.B16], 32(R0)
#define LOADA1_BFLOAT16 \
	VLD1.P 2(R1), V16.H[0]; \
	SHL16(16, 0)
#define LOADB1_BFLOAT16 \
	VLD1.P 2(R2), V16.H[0]; \
	SHL16(16, 4)
#define STORE1_BFLOAT16 \
	NEAREST_BFLOAT16(0); USHR16(0, 0); \
	VST1.P V0.H[0], 2(R0)

#define NOROUND(d)

// The loops: blocks of lanes elements, then single ones.

#define BLOCKS(lanes) \
blocks:            \
	CMP $lanes, R3; \
	BLT elements

#define ELEMENTS(lanes) \
	SUB $lanes, R3; \
	B   blocks;     \
elements:          \
	CBZ R3, done

#define DONE \
	SUB $1, R3;   \
	B   elements; \
done:            \
	RET

#define REDUCE(lanes, OP, CANON, LOADA, LOADB, STORE, LOADA1, LOADB1, STORE1) \
	BLOCKS(lanes);                                      \
	LOADA; LOADB;                                       \
	OP(4, 0, 0); OP(5, 1, 1); OP(6, 2, 2); OP(7, 3, 3); \
	CANON(0); CANON(1); CANON(2); CANON(3);             \
	STORE;                                              \
	ELEMENTS(lanes);                                    \
	LOADA1; LOADB1; OP(4, 0, 0); CANON(0); STORE1;      \
	DONE

#define SCALE(lanes, MUL, CANON, LOADA, STORE, LOADA1, STORE1) \
	BLOCKS(lanes);                                              \
	LOADA;                                                      \
	MUL(30, 0, 0); MUL(30, 1, 1); MUL(30, 2, 2); MUL(30, 3, 3); \
	CANON(0); CANON(1); CANON(2); CANON(3);                     \
	STORE;                                                      \
	ELEMENTS(lanes);                                            \
	LOADA1; MUL(30, 0, 0); CANON(0); STORE1;                    \
	DONE

#define SCALEADD(lanes, MUL, ROUND, ADD, CANON, LOADA, LOADB, STORE, LOADA1, LOADB1, STORE1) \
	BLOCKS(lanes);                                              \
	LOADA; LOADB;                                               \
	MUL(30, 4, 4); MUL(30, 5, 5); MUL(30, 6, 6); MUL(30, 7, 7); \
	ROUND(4); ROUND(5); ROUND(6); ROUND(7);                     \
	ADD(4, 0, 0); ADD(5, 1, 1); ADD(6, 2, 2); ADD(7, 3, 3);     \
	CANON(0); CANON(1); CANON(2); CANON(3);                     \
	STORE;                                                      \
	ELEMENTS(lanes);                                            \
	LOADA1; LOADB1; MUL(30, 4, 4); ROUND(4); ADD(4, 0, 0);      \
	CANON(0); STORE1;                                           \
	DONE

// func sumFloat32NEON(dst, a, b *byte, n int)
TEXT ·sumFloat32NEON(SB), NOSPLIT, $0-32
	ARGS2
	NAN4S
	REDUCE(16, FADD4S, CANON4S, LOADA_PLAIN, LOADB_PLAIN, STORE_PLAIN, LOADA1_4S, LOADB1_4S, STORE1_4S)

// func prodFloat32NEON(dst, a, b *byte, n int)
TEXT ·prodFloat32NEON(SB), NOSPLIT, $0-32
	ARGS2
	NAN4S
	REDUCE(16, FMUL4S, CANON4S, LOADA_PLAIN, LOADB_PLAIN, STORE_PLAIN, LOADA1_4S, LOADB1_4S, STORE1_4S)

// func minFloat32NEON(dst, a, b *byte, n int)
TEXT ·minFloat32NEON(SB), NOSPLIT, $0-32
	ARGS2
	NAN4S
	REDUCE(16, FMIN4S, CANON4S, LOADA_PLAIN, LOADB_PLAIN, STORE_PLAIN, LOADA1_4S, LOADB1_4S, STORE1_4S)

// func maxFloat32NEON(dst, a, b *byte, n int)
TEXT ·maxFloat32NEON(SB), NOSPLIT, $0-32
	ARGS2
	NAN4S
	REDUCE(16, FMAX4S, CANON4S, LOADA_PLAIN, LOADB_PLAIN, STORE_PLAIN, LOADA1_4S, LOADB1_4S, STORE1_4S)

// func scaleFloat32NEON(dst, a *byte, n int, x float64)
TEXT ·scaleFloat32NEON(SB), NOSPLIT, $0-32
	ARGS1
	NAN4S
	X4S(x+24(FP))
	SCALE(16, FMUL4S, CANON4S, LOADA_PLAIN, STORE_PLAIN, LOADA1_4S, STORE1_4S)

// func scaleAddFloat32NEON(dst, a, b *byte, n int, x float64)
TEXT ·scaleAddFloat32NEON(SB), NOSPLIT, $0-40
	ARGS2
	NAN4S
	X4S(x+32(FP))
	SCALEADD(16, FMUL4S, NOROUND, FADD4S, CANON4S, LOADA_PLAIN, LOADB_PLAIN, STORE_PLAIN, LOADA1_4S, LOADB1_4S, STORE1_4S)

// func sumFloat64NEON(dst, a, b *byte, n int)
TEXT ·sumFloat64NEON(SB), NOSPLIT, $0-32
	ARGS2
	NAN2D
	REDUCE(8, FADD2D, CANON2D, LOADA_PLAIN, LOADB_PLAIN, STORE_PLAIN, LOADA1_2D, LOADB1_2D, STORE1_2D)

// func prodFloat64NEON(dst, a, b *byte, n int)
TEXT ·prodFloat64NEON(SB), NOSPLIT, $0-32
	ARGS2
	NAN2D
	REDUCE(8, FMUL2D, CANON2D, LOADA_PLAIN, LOADB_PLAIN, STORE_PLAIN, LOADA1_2D, LOADB1_2D, STORE1_2D)

// func minFloat64NEON(dst, a, b *byte, n int)
TEXT ·minFloat64NEON(SB), NOSPLIT, $0-32
	ARGS2
	NAN2D
	REDUCE(8, FMIN2D, CANON2D, LOADA_PLAIN, LOADB_PLAIN, STORE_PLAIN, LOADA1_2D, LOADB1_2D, STORE1_2D)

// func maxFloat64NEON(dst, a, b *byte, n int)
TEXT ·maxFloat64NEON(SB), NOSPLIT, $0-32
	ARGS2
	NAN2D
	REDUCE(8, FMAX2D, CANON2D, LOADA_PLAIN, LOADB_PLAIN, STORE_PLAIN, LOADA1_2D, LOADB1_2D, STORE1_2D)

// func scaleFloat64NEON(dst, a *byte, n int, x float64)
TEXT ·scaleFloat64NEON(SB), NOSPLIT, $0-32
	ARGS1
	NAN2D
	X2D(x+24(FP))
	SCALE(8, FMUL2D, CANON2D, LOADA_PLAIN, STORE_PLAIN, LOADA1_2D, STORE1_2D)

// func scaleAddFloat64NEON(dst, a, b *byte, n int, x float64)
TEXT ·scaleAddFloat64NEON(SB), NOSPLIT, $0-40
	ARGS2
	NAN2D
	X2D(x+32(FP))
	SCALEADD(8, FMUL2D, NOROUND, FADD2D, CANON2D, LOADA_PLAIN, LOADB_PLAIN, STORE_PLAIN, LOADA1_2D, LOADB1_2D, STORE1_2D)

// func sumFloat16NEON(dst, a, b *byte, n int)
TEXT ·sumFloat16NEON(SB), NOSPLIT, $0-32
	ARGS2
	NAN4S
	REDUCE(16, FADD4S, CANON4S, LOADA_FLOAT16, LOADB_FLOAT16, STORE_FLOAT16, LOADA1_FLOAT16, LOADB1_FLOAT16, STORE1_FLOAT16)

// func prodFloat16NEON(dst, a, b *byte, n int)
TEXT ·prodFloat16NEON(SB), NOSPLIT, $0-32
	ARGS2
	NAN4S
	REDUCE(16, FMUL4S, CANON4S, LOADA_FLOAT16, LOADB_FLOAT16, STORE_FLOAT16, LOADA1_FLOAT16, LOADB1_FLOAT16, STORE1_FLOAT16)

// func minFloat16NEON(dst, a, b *byte, n int)
TEXT ·minFloat16NEON(SB), NOSPLIT, $0-32
	ARGS2
	NAN4S
	REDUCE(16, FMIN4S, CANON4S, LOADA_FLOAT16, LOADB_FLOAT16, STORE_FLOAT16, LOADA1_FLOAT16, LOADB1_FLOAT16, STORE1_FLOAT16)

// func maxFloat16NEON(dst, a, b *byte, n int)
TEXT ·maxFloat16NEON(SB), NOSPLIT, $0-32
	ARGS2
	NAN4S
	REDUCE(16, FMAX4S, CANON4S, LOADA_FLOAT16, LOADB_FLOAT16, STORE_FLOAT16, LOADA1_FLOAT16, LOADB1_FLOAT16, STORE1_FLOAT16)

// func scaleFloat16NEON(dst, a *byte, n int, x float64)
TEXT ·scaleFloat16NEON(SB), NOSPLIT, $0-32
	ARGS1
	NAN4S
	X4S(x+24(FP))
	SCALE(16, FMUL4S, CANON4S, LOADA_FLOAT16, STORE_FLOAT16, LOADA1_FLOAT16, STORE1_FLOAT16)

// func scaleAddFloat16NEON(dst, a, b *byte, n int, x float64)
TEXT ·scaleAddFloat16NEON(SB), NOSPLIT, $0-40
	ARGS2
	NAN4S
	X4S(x+32(FP))
	SCALEADD(16, FMUL4S, ROUND_FLOAT16, FADD4S, CANON4S, LOADA_FLOAT16, LOADB_FLOAT16, STORE_FLOAT16, LOADA1_FLOAT16, LOADB1_FLOAT16, STORE1_FLOAT16)

// func sumBFloat16NEON(dst, a, b *byte, n int)
TEXT ·sumBFloat16NEON(SB), NOSPLIT, $0-32
	ARGS2
	BFLOAT16
	REDUCE(16, FADD4S, CANON4S, LOADA_BFLOAT16, LOADB_BFLOAT16, STORE_BFLOAT16, LOADA1_BFLOAT16, LOADB1_BFLOAT16, STORE1_BFLOAT16)

// func prodBFloat16NEON(dst, a, b *byte, n int)
TEXT ·prodBFloat16NEON(SB), NOSPLIT, $0-32
	ARGS2
	BFLOAT16
	REDUCE(16, FMUL4S, CANON4S, LOADA_BFLOAT16, LOADB_BFLOAT16, STORE_BFLOAT16, LOADA1_BFLOAT16, LOADB1_BFLOAT16, STORE1_BFLOAT16)

// func minBFloat16NEON(dst, a, b *byte, n int)
TEXT ·minBFloat16NEON(SB), NOSPLIT, $0-32
	ARGS2
	BFLOAT16
	REDUCE(16, FMIN4S, CANON4S, LOADA_BFLOAT16, LOADB_BFLOAT16, STORE_BFLOAT16, LOADA1_BFLOAT16, LOADB1_BFLOAT16, STORE1_BFLOAT16)

// func maxBFloat16NEON(dst, a, b *byte, n int)
TEXT ·maxBFloat16NEON(SB), NOSPLIT, $0-32
	ARGS2
	BFLOAT16
	REDUCE(16, FMAX4S, CANON4S, LOADA_BFLOAT16, LOADB_BFLOAT16, STORE_BFLOAT16, LOADA1_BFLOAT16, LOADB1_BFLOAT16, STORE1_BFLOAT16)

// func scaleBFloat16NEON(dst, a *byte, n int, x float64)
TEXT ·scaleBFloat16NEON(SB), NOSPLIT, $0-32
	ARGS1
	BFLOAT16
	X4S(x+24(FP))
	SCALE(16, FMUL4S, CANON4S, LOADA_BFLOAT16, STORE_BFLOAT16, LOADA1_BFLOAT16, STORE1_BFLOAT16)

// func scaleAddBFloat16NEON(dst, a, b *byte, n int, x float64)
TEXT ·scaleAddBFloat16NEON(SB), NOSPLIT, $0-40
	ARGS2
	BFLOAT16
	X4S(x+32(FP))
	CANON4S(30)
	SCALEADD(16, FMUL4S, ROUND_BFLOAT16, FADD4S, CANON4S, LOADA_BFLOAT16, LOADB_BFLOAT16, STORE_BFLOAT16, LOADA1_BFLOAT16, LOADB1_BFLOAT16, STORE1_BFLOAT16)
