//go:build linux

#include "textflag.h"

// steps makes the calls of a block (see dl.go), whose address is in DI, in C's
// way: it runs on the thread's own stack, called by the runtime. Six arguments are
// in registers, six on the stack, which is aligned to 16 bytes at the call. BX and
// R12 are C's to preserve.
GLOBL ·stepsABI0(SB), NOPTR|RODATA, $8
DATA ·stepsABI0(SB)/8, $steps(SB)

TEXT steps(SB), NOSPLIT, $48
	MOVQ 0(DI), R12
	LEAQ 8(DI), BX

next:
	MOVQ 8(BX), DI
	MOVQ 16(BX), SI
	MOVQ 24(BX), DX
	MOVQ 32(BX), CX
	MOVQ 40(BX), R8
	MOVQ 48(BX), R9
	MOVQ 56(BX), AX
	MOVQ AX, 0(SP)
	MOVQ 64(BX), AX
	MOVQ AX, 8(SP)
	MOVQ 72(BX), AX
	MOVQ AX, 16(SP)
	MOVQ 80(BX), AX
	MOVQ AX, 24(SP)
	MOVQ 88(BX), AX
	MOVQ AX, 32(SP)
	MOVQ 96(BX), AX
	MOVQ AX, 40(SP)
	XORL AX, AX
	MOVQ 0(BX), R11
	CALL R11
	MOVQ AX, 104(BX)
	TESTL AX, AX
	JEQ  on
	CMPQ 112(BX), $0
	JNE  out

on:
	ADDQ $120, BX
	DECQ R12
	JNE  next

out:
	XORL AX, AX
	RET
