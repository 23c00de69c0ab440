#include "textflag.h"

// func Write(p unsafe.Pointer, bytes int)
TEXT ·Write(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ bytes+8(FP), CX

line:
	SUBQ $64, CX
	JL   done
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08 // PREFETCHW (AX), which the assembler does not know
	ADDQ $64, AX
	JMP  line

done:
	RET

// func Read(p unsafe.Pointer, bytes int)
TEXT ·Read(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ bytes+8(FP), CX

line:
	PREFETCHT0 (AX)
	ADDQ       $64, AX
	SUBQ       $64, CX
	JG         line
	RET
