"""The cost of a run's attempts, from their records and the tester's price table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from securebench.client.submit.prices import Prices
from securebench.client.volume.record_mirror import read_records
from securebench.core.json_values import object_at, object_in
from securebench.run.records.reading import Record
from securebench.stats.cost import Price, Tokens, Use, cost

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
    tokens = Tokens(*(_count(usage.get(name)) for name in _USAGE))
    asked = metadata.get("provider_models")
    models = tuple(map(str, asked)) if isinstance(asked, list) else ()
    if len(models) >= MAX_MODELS:
        return Use((*models, "others"), tokens)
    configured = metadata.get(f"{metadata.get('harness')}_model")
    return Use(models or ((configured,) if isinstance(configured, str) else ()), tokens)


def cost_fields(candidates: Path, prices: Prices) -> dict[str, object]:
    """Return what ``summary.json`` says of the cost; nothing without a price table.

    Args:
        candidates: The records; the cost is that of all their attempts.
        prices: By model; the summary keeps them.
    """
    if not prices:
        return {}
    found = cost(filter(None, map(record_use, read_records(candidates))), prices)
    return {
        "cost": {"micro_dollars": found.micro_dollars, "unpriced_tokens": dict(found.unpriced)},
        "prices": {model: price._asdict() for model, price in prices.items()},
    }


def summary_prices(summary: Mapping[str, object]) -> dict[str, Price]:
    """Return the prices that a summary was written with."""
    rows = object_at(summary, "prices")
    return {
        model: Price(*(_count(object_in(row).get(name)) for name in Price._fields))
        for model, row in rows.items()
    }


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
