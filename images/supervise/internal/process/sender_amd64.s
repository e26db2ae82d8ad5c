#include "go_asm.h"
#include "textflag.h"

// Called by the kernel: DI the number, SI the siginfo, DX the context. They reach the runtime's
// handler as they came. R10, R11 and AX belong to the callee.
TEXT ·noteSender(SB), NOSPLIT|NOFRAME, $0
	MOVL const_siCode(SI), R10
	ORL  const_siPid(SI), R10 // both are 0 for one from outside
	SETNE R11
	MOVBLZX R11, R11
	INCL R11 // senderOutside or senderInside
	XORL AX, AX
	LOCK
	CMPXCHGL R11, ·firstSender(SB) // only the first one counts
	MOVQ ·goHandler(SB), AX
	JMP  AX

DATA ·noteSenderAddress(SB)/8, $·noteSender(SB)
GLOBL ·noteSenderAddress(SB), RODATA, $8
