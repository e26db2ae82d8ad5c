"""What an attempt used of a model provider, as its record has it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from securebench.json_values import object_at
from securebench.run.records.reading import Record
from securebench.stats.cost import Tokens, Use

MAX_MODELS: Final = 8
"""A record lists no more; with as many there may have been others (records.md)."""

_USAGE = ("requests", "input_tokens", "cached_tokens", "output_tokens")


def record_use(record: Record) -> Use | None:
    """Return models and tokens of an attempt, all its launches together; None without a provider.

    The models are those that the launch asked which produced the candidate, else the one that was
    configured.
    """
    metadata = object_at(record, "producer_metadata")
    usage = metadata.get("usage")
    if not isinstance(usage, Mapping):
        return None
    tokens = Tokens(*(whole_number(usage.get(name)) for name in _USAGE))
    asked = metadata.get("provider_models")
    models = tuple(map(str, asked)) if isinstance(asked, list) else ()
    if len(models) >= MAX_MODELS:
        return Use((*models, "others"), tokens)
    configured = metadata.get(f"{metadata.get('harness')}_model")
    return Use(models or ((configured,) if isinstance(configured, str) else ()), tokens)


def whole_number(value: object) -> int:
    """Return a count or price as records and summaries have it; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
