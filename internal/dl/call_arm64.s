//go:build linux

#include "textflag.h"

// steps makes the calls of a block (see dl.go), whose address is in R0, in C's
// way: it runs on the thread's own stack, called by the runtime. Eight arguments
// are in registers, four on the stack. R19 and R20 are C's to preserve.
GLOBL ·stepsABI0(SB), NOPTR|RODATA, $8
DATA ·stepsABI0(SB)/8, $steps(SB)

TEXT steps(SB), NOSPLIT|NOFRAME, $0
	SUB  $64, RSP
	MOVD R29, 32(RSP)
	MOVD R30, 40(RSP)
	MOVD R19, 48(RSP)
	MOVD R20, 56(RSP)
	MOVD 0(R0), R20
	ADD  $8, R0, R19

next:
	MOVD 8(R19), R0
	MOVD 16(R19), R1
	MOVD 24(R19), R2
	MOVD 32(R19), R3
	MOVD 40(R19), R4
	MOVD 48(R19), R5
	MOVD 56(R19), R6
	MOVD 64(R19), R7
	MOVD 72(R19), R9
	MOVD R9, 0(RSP)
	MOVD 80(R19), R9
	MOVD R9, 8(RSP)
	MOVD 88(R19), R9
	MOVD R9, 16(RSP)
	MOVD 96(R19), R9
	MOVD R9, 24(RSP)
	MOVD 0(R19), R10
	CALL (R10)
	MOVD R0, 104(R19)
	CBZW R0, on
	MOVD 112(R19), R9
	CBNZ R9, out

on:
	ADD  $120, R19
	SUB  $1, R20
	CBNZ R20, next

out:
	MOVD $0, R0
	MOVD 32(RSP), R29
	MOVD 40(RSP), R30
	MOVD 48(RSP), R19
	MOVD 56(RSP), R20
	ADD  $64, RSP
	RET
