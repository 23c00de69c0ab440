//go:build linux

#include "textflag.h"

// calls makes the calls of a block; see dl.go. DI has the block's address. The runtime calls
// it on the thread's own stack, with C's calling convention. Each call gets six arguments in
// registers and six on the stack, which is aligned to 16 bytes at the call. BX, the block, and
// R12, the bracket, are callee-saved in C.
GLOBL ·callsABI0(SB), NOPTR|RODATA, $8
DATA ·callsABI0(SB)/8, $calls(SB)

TEXT calls(SB), NOSPLIT, $48
	MOVQ  DI, BX
	MOVQ  0(BX), R12
	TESTQ R12, R12
	JEQ   call
	MOVQ  8(R12), DI
	MOVQ  0(R12), R11
	CALL  R11
	MOVQ  AX, 32(BX)
	TESTL AX, AX
	JNE   out

call:
	MOVQ   8(BX), R10
	MOVQ   8(R10), DI
	MOVQ   16(R10), SI
	MOVQ   24(R10), DX
	MOVQ   32(R10), CX
	MOVQ   40(R10), R8
	MOVQ   48(R10), R9
	MOVUPS 56(R10), X0
	MOVUPS 72(R10), X1
	MOVUPS 88(R10), X2
	MOVUPS X0, 0(SP)
	MOVUPS X1, 16(SP)
	MOVUPS X2, 32(SP)
	MOVQ   0(R10), R11
	XORL   AX, AX
	CALL   R11
	MOVQ   AX, 40(BX)
	DECQ   16(BX)
	JEQ    after
	TESTL  AX, AX
	JNE    after
	MOVQ   24(BX), R10
	MOVL   0(R10), R10
	TESTL  R10, R10
	JNE    after
	ADDQ   $104, 8(BX)
	JMP    call

after:
	TESTQ R12, R12
	JEQ   out
	LEAQ  48(BX), DI
	MOVQ  16(R12), R11
	CALL  R11

out:
	XORL AX, AX
	RET
