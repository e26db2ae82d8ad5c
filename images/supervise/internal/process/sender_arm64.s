#include "go_asm.h"
#include "textflag.h"

// Called by the kernel: R0 the number, R1 the siginfo, R2 the context. They reach the runtime's
// handler as they came. R9 to R12 belong to the callee.
TEXT ·noteSender(SB), NOSPLIT|NOFRAME, $0
	MOVWU const_siCode(R1), R9
	MOVWU const_siPid(R1), R10 // both are 0 for one from outside
	ORR   R10, R9
	CMPW  $0, R9
	CSET  NE, R9
	ADDW  $1, R9 // senderOutside or senderInside
	MOVD  $·firstSender(SB), R10

again:
	LDAXRW (R10), R11
	CBNZW  R11, known // only the first one counts
	STLXRW R9, (R10), R12
	CBNZW  R12, again

known:
	MOVD ·goHandler(SB), R9
	JMP  (R9)

DATA ·noteSenderAddress(SB)/8, $·noteSender(SB)
GLOBL ·noteSenderAddress(SB), RODATA, $8
