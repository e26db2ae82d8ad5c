"""Exit codes of the programs inside our Pods (docs/reference/protocol.md)."""

from __future__ import annotations

from enum import IntEnum

STORAGE_FAILED = 74
"""Of a courier that a disk failed, not what it found (EX_IOERR); its message says how."""


class Code(IntEnum):
    """Exit codes that supervise alone produces."""

    DONE = 0
    FAILED = 1
    PHASE_FAILED = 64
    STAGING_FAILED = 90
    TERMINATED = 91
    OWN_FAULT = 92
    NETWORK_OPEN = 93
    TAMPERED = 94
    UNFIT = 95
    HALTED = 96
    TIMED_OUT = 124


VERDICTS = frozenset({Code.DONE, Code.FAILED, Code.TAMPERED, Code.UNFIT, Code.TIMED_OUT})
PHASES = range(Code.PHASE_FAILED, Code.STAGING_FAILED)
