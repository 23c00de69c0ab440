//go:build linux

#include "textflag.h"

// calls makes the calls of a block; see dl.go. R0 has the block's address. The runtime calls it
// on the thread's own stack, with C's calling convention. Each call gets eight arguments in
// registers and four on the stack. R19, the block, and R20, the bracket, are callee-saved in C.
GLOBL ·callsABI0(SB), NOPTR|RODATA, $8
DATA ·callsABI0(SB)/8, $calls(SB)

TEXT calls(SB), NOSPLIT|NOFRAME, $0
	SUB  $64, RSP
	MOVD R29, 32(RSP)
	MOVD R30, 40(RSP)
	MOVD R19, 48(RSP)
	MOVD R20, 56(RSP)
	MOVD R0, R19
	MOVD 0(R19), R20
	CBZ  R20, call
	MOVD 8(R20), R0
	MOVD 0(R20), R10
	CALL (R10)
	MOVD R0, 32(R19)
	CBNZW R0, out

call:
	MOVD 8(R19), R10
	MOVD 72(R10), R9
	MOVD R9, 0(RSP)
	MOVD 80(R10), R9
	MOVD R9, 8(RSP)
	MOVD 88(R10), R9
	MOVD R9, 16(RSP)
	MOVD 96(R10), R9
	MOVD R9, 24(RSP)
	MOVD 8(R10), R0
	MOVD 16(R10), R1
	MOVD 24(R10), R2
	MOVD 32(R10), R3
	MOVD 40(R10), R4
	MOVD 48(R10), R5
	MOVD 56(R10), R6
	MOVD 64(R10), R7
	MOVD 0(R10), R10
	CALL (R10)
	MOVD R0, 40(R19)
	MOVD 16(R19), R9
	SUB  $1, R9
	MOVD R9, 16(R19)
	CBZ  R9, after
	CBNZW R0, after
	MOVD 24(R19), R10
	MOVWU 0(R10), R9
	CBNZW R9, after
	MOVD 8(R19), R9
	ADD  $104, R9
	MOVD R9, 8(R19)
	B    call

after:
	CBZ  R20, out
	ADD  $48, R19, R0
	MOVD 16(R20), R10
	CALL (R10)

out:
	MOVD $0, R0
	MOVD 32(RSP), R29
	MOVD 40(RSP), R30
	MOVD 48(RSP), R19
	MOVD 56(RSP), R20
	ADD  $64, RSP
	RET
