"""The attempts of a run for other programs: CSV, Parquet, OpenMetrics."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.exposition import generate_latest

from securebench.analysis.results import Entry, Overview, ResultSet, overview, visible
from securebench.stats.cost import DOLLAR, cost

_DECIMAL: Final = ("score", "seconds")
TOKEN_COLUMNS: Final = ("requests", "input_tokens", "cached_tokens", "output_tokens")
_WHOLE: Final = ("attempt", "launches", "memory_kills", *TOKEN_COLUMNS, "cost_micro_dollars")
"""Columns of numbers, whatever the values of a run are; the others are texts."""

Cell = str | int | float | bool | None

FORMULA_STARTS: Final = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001 - spreadsheets read these too
"""What a spreadsheet may take for the beginning of a formula.

Source: OWASP, CSV Injection.
"""

_SEPARATOR_BEFORE_FORMULA: Final = re.compile(
    rf"""([;,\t|\r\n]["' ]*)(?=[{re.escape("".join(FORMULA_STARTS).strip())}])"""
)
"""What a reader that splits at another separator, and takes no heed of quotes, takes for the
beginning of a cell, where that would be a formula. Spreadsheets of many countries split at a
semicolon."""


class ExportFormat(StrEnum):
    """How attempts are written."""

    CSV = "csv"
    PARQUET = "parquet"
    OPENMETRICS = "openmetrics"


SUFFIXES: Final[Mapping[str, ExportFormat]] = {
    ".csv": ExportFormat.CSV,
    ".parquet": ExportFormat.PARQUET,
    ".prom": ExportFormat.OPENMETRICS,
}
"""What a file's name says about its format."""


def attempt_rows(results: ResultSet) -> Iterator[dict[str, Cell]]:
    """Yield one row per attempt, in the order of the records; every row has the same columns."""
    for entry in results.entries:
        tokens = entry.tokens
        yield {
            "run": results.name,
            "run_id": results.run_id,
            "benchmark_id": results.benchmark_id,
            "task_id": entry.task_id,
            "attempt": entry.attempt,
            "family": entry.family,
            "difficulty": entry.difficulty,
            "tags": "; ".join(entry.tags),
            "outcome": entry.outcome,
            "passed": entry.passed,
            "score": entry.score,
            "reason": entry.reason,
            "details": entry.details,
            "launches": entry.launches,
            "seconds": entry.seconds,
            "memory_kills": entry.memory_kills,
            "models": "; ".join(entry.use.models) if entry.use is not None else "",
            **dict(zip(TOKEN_COLUMNS, tokens or (None,) * len(TOKEN_COLUMNS), strict=True)),
            "cost_micro_dollars": attempt_cost(results, entry),
        }


def as_csv(results: ResultSet) -> Iterator[bytes]:
    """Yield attempts as CSV lines in UTF-8; no cell is run by a spreadsheet."""
    header = True
    for row in attempt_rows(results):
        if header:
            yield _csv_line(tuple(row))
            header = False
        yield _csv_line([cell_text(cell) for cell in row.values()])


def cell_text(cell: Cell) -> str:
    """Return a cell as text: invisible characters spelled out, formulas behind an apostrophe."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if not isinstance(cell, str):
        return str(cell)
    shown = _SEPARATOR_BEFORE_FORMULA.sub(r"\1'", visible(cell))
    return f"'{shown}" if cell.lstrip(" ").startswith(FORMULA_STARTS) else shown


def as_openmetrics(results: ResultSet) -> Iterator[bytes]:
    """Yield the figures of a run as OpenMetrics text, for a textfile collector or a gateway."""
    registry = CollectorRegistry()
    figures, labels = overview(results), {"run": visible(results.name)}
    labels["benchmark"] = visible(results.benchmark_id)
    for name, help_text, series in _series(results, figures):
        names = sorted({label for extra, _ in series for label in extra})
        gauge = Gauge(f"securebench_result_{name}", help_text, [*labels, *names], registry=registry)
        for extra, value in series:
            shown = {label: visible(text) for label, text in extra.items()}
            gauge.labels(**labels, **shown).set(value)
    yield generate_latest(registry)  # type: ignore[no-untyped-call]


Series = Sequence[tuple[Mapping[str, str], float]]


def _series(results: ResultSet, figures: Overview) -> Iterator[tuple[str, str, Series]]:
    yield "tasks", "Tasks with a record.", [({}, figures.tasks)]
    yield "verdicts", "Attempts with a verdict.", [({}, figures.verified)]
    yield "passed", "Attempts that passed.", [({}, figures.passed)]
    outcomes = Counter(entry.outcome or "none" for entry in results.entries)
    yield (
        "attempts",
        "Attempts with a record, by outcome.",
        [({"outcome": outcome}, count) for outcome, count in outcomes.items()],
    )
    if figures.score is not None:
        yield (
            "pass_rate",
            "Share of verdicts that passed, with its 95 % interval.",
            [({"bound": bound}, share) for bound, share in figures.score._asdict().items()],
        )
    if figures.mean_reward is not None:
        yield (
            "mean_reward",
            "Mean score of the verdicts, with its 95 % interval.",
            [({"bound": bound}, end) for bound, end in figures.mean_reward._asdict().items()],
        )
    if figures.pass_at_k:
        yield (
            "pass_at_k",
            "Chance that a task passes in k attempts, with its 95 % interval.",
            [
                ({"k": str(each.k), "bound": bound}, share)
                for each in figures.pass_at_k
                for bound, share in each.estimate._asdict().items()
            ],
        )
    if figures.tokens is not None:
        counts = figures.tokens._asdict().items()
        yield "tokens", "Requests and tokens.", [({"kind": kind}, count) for kind, count in counts]
    if figures.cost is not None:
        yield "cost_dollars", "Cost.", [({}, figures.cost.micro_dollars / DOLLAR)]
        yield "unpriced_tokens", "Without a price.", [({}, sum(figures.cost.unpriced.values()))]


def write_parquet(results: ResultSet, path: Path) -> None:
    """Write attempts as a Parquet file.

    Raises:
        ModuleNotFoundError: The extra ``export`` is not installed.
    """
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    types = {
        **dict.fromkeys(_WHOLE, arrow.int64()),
        **dict.fromkeys(_DECIMAL, arrow.float64()),
        "passed": arrow.bool_(),
    }
    columns: dict[str, list[Cell]] = {}
    for row in attempt_rows(results):
        for name, cell in row.items():
            columns.setdefault(name, []).append(_utf8(cell))
    table = {
        name: arrow.array(cells, types.get(name, arrow.string())) for name, cells in columns.items()
    }
    parquet.write_table(arrow.table(table), path)


def _utf8(cell: Cell) -> Cell:
    is_text = isinstance(cell, str)
    return cell.encode("utf-8", "backslashreplace").decode() if is_text else cell  # type: ignore[union-attr]


def attempt_cost(results: ResultSet, entry: Entry) -> int | None:
    """Return the cost of an attempt in micro-dollars; None if a model has no price."""
    if not results.prices or entry.use is None:
        return None
    found = cost([entry.use], results.prices)
    return None if found.unpriced else found.micro_dollars


def _csv_line(cells: Iterable[str]) -> bytes:
    line = StringIO()
    csv.writer(line, quoting=csv.QUOTE_ALL).writerow(cells)
    return line.getvalue().encode()
