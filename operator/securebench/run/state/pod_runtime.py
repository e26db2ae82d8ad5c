"""The container runtime of a Pod, by the kernel release that was measured inside it."""

from __future__ import annotations

from enum import StrEnum

SANDBOX_KERNEL = "gvisor"
"""Part of the kernel release that gVisor shows to a Pod."""


class Runtime(StrEnum):
    """Container runtime of a Pod, as seen from inside."""

    GVISOR = "gvisor"
    RUNC = "runc"
    """An ordinary kernel: no sandbox was detected, whatever the runtime class is called."""
    UNKNOWN = "unknown"
    """No Pod reported its kernel."""


def runtime_of(kernel: str) -> Runtime:
    """Return the runtime of a Pod from the kernel release measured inside it; it may be empty."""
    if not kernel:
        return Runtime.UNKNOWN
    return Runtime.GVISOR if SANDBOX_KERNEL in kernel else Runtime.RUNC
