"""What the container of a verifier took, from the files of its own cgroup.

It is evidence only. Where the kernel does not tell it (gVisor, an old kernel), nothing is said.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.protocol.messages import (
    CPU_PERIODS,
    CPU_THROTTLED,
    MAX_MESSAGE_BYTES,
    MEMORY_PEAK_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CGROUP = Path("/sys/fs/cgroup")
MEMORY_PEAKS = ("memory.peak", "memory/memory.max_usage_in_bytes")
"""The most memory at once since the container's start, file cache included: cgroup v2, v1."""
CPU_STATS = ("cpu.stat", "cpu/cpu.stat")
"""The periods of the CPU limit: cgroup v2, v1."""


def measure_usage(cgroup: Path = CGROUP) -> Callable[[], Mapping[str, int]]:
    """Begin to measure and return what gives the known fields of the usage.

    Args:
        cgroup: Where the container sees its own cgroup.
    """
    before = _numbers(cgroup, CPU_STATS)

    def used() -> Mapping[str, int]:
        after = _numbers(cgroup, CPU_STATS)
        found = {
            MEMORY_PEAK_BYTES: _numbers(cgroup, MEMORY_PEAKS).get("", 0),
            CPU_PERIODS: after.get("nr_periods", 0) - before.get("nr_periods", 0),
            CPU_THROTTLED: after.get("nr_throttled", 0) - before.get("nr_throttled", 0),
        }
        return {name: count for name, count in found.items() if count > 0}

    return used


def with_usage(message: bytes, usage: Mapping[str, int]) -> bytes:
    """Return a termination message with the usage, or as it is where that has no room."""
    fields = json.dumps(usage, separators=(",", ":")).encode()
    longer = message[:-1] + b"," + fields[1:]
    return longer if usage and len(longer) <= MAX_MESSAGE_BYTES else message


def _numbers(cgroup: Path, names: Sequence[str]) -> dict[str, int]:
    """Return the numbers of the first file that can be read; a number alone has the key ``""``."""
    for name in names:
        try:
            lines = (cgroup / name).read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):
            continue
        pairs = (line.rpartition(" ") for line in lines)
        return {key: int(value) for key, _, value in pairs if value.isdecimal()}
    return {}
