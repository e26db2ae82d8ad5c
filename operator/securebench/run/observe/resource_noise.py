"""Whether the limits of a container may have decided a launch: what it took of them."""

from __future__ import annotations

from collections.abc import Mapping

from securebench.core.json_values import object_at, text_at
from securebench.core.sizes import MIB
from securebench.run.api.field_types import quantity
from securebench.run.observe.stage import OOM_REASON

Fields = Mapping[str, object]

NEAR_LIMIT = 0.95
"""Share of the memory limit from which a peak counts as near; file cache is part of it."""

MUCH_THROTTLED = 0.25
"""Share of the periods of a CPU limit in which a container that was throttled much was held up."""


def is_killed_for_memory(container: Fields) -> bool:
    """Whether the kubelet says that the container's memory limit ended it."""
    return container.get("reason") == OOM_REASON


def is_noisy(container: Fields) -> bool:
    """Whether a container came near its memory limit or was throttled much."""
    usage = object_at(container, "usage")
    limit, periods = _memory_limit(container), _count(usage, "cpu_periods")
    is_near = limit > 0 and _count(usage, "memory_peak_bytes") >= NEAR_LIMIT * limit
    is_slow = periods > 0 and _count(usage, "cpu_throttled") >= MUCH_THROTTLED * periods
    return is_near or is_slow


def usage_text(container: Fields) -> tuple[str, ...]:
    """Return what is known of what a container took."""
    usage = object_at(container, "usage")
    peak, throttled = _count(usage, "memory_peak_bytes"), _count(usage, "cpu_throttled")
    words = [f"peak memory {peak / MIB:.1f} MiB"] if peak else []
    if throttled:
        words.append(f"CPU throttled in {throttled} of {_count(usage, 'cpu_periods')} periods")
    words += ["near its limits"] if is_noisy(container) else []
    return tuple(words)


def _memory_limit(container: Fields) -> float:
    try:
        return float(quantity(text_at(object_at(container, "limits"), "memory")))
    except ValueError:
        return 0.0


def _count(fields: Fields, key: str) -> int:
    value = fields.get(key)
    return value if isinstance(value, int) else 0
