"""The cost of a run's attempts, from their records and the tester's price table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from securebench.client.result_folder import read_records
from securebench.client.tester_config import Prices
from securebench.json_values import object_at, object_in
from securebench.run.records.reading import record_use, whole_number
from securebench.stats.cost import Price, cost


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
        model: Price(*(whole_number(object_in(row).get(name)) for name in Price._fields))
        for model, row in rows.items()
    }
