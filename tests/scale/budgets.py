"""Budgets beside what was measured against the API server, as a table, JSON and a plot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from rich.table import Table

from bench.spread import Spread, spread
from scale.restart import Restart
from scale.sessions import Measured

MIN_RATIO = 0.85
MAX_GROWTH = 1.1
MAX_MEMORY_MIB = 200.0
MAX_DECISION_MS = 5.0
MAX_STATUS_KIB = 32.0
MIN_STATUS_SECONDS = 2.0
MAX_RESTART_SECONDS = 5.0


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        what: Is measured.
        budget: For it, or empty.
        measured: In words.
        is_met: Whether it is within the budget; None without one.
    """

    what: str
    budget: str
    measured: str
    is_met: bool | None = None


@dataclass
class Findings:
    """Everything that one go measured.

    Attributes:
        ours: Tasks per second of SecureBench, round by round.
        bare: Those of the bare client, in the same rounds.
        compared: Tasks of these runs.
        sizes: One run of each size, the smallest first.
        flights: Runs with many Pods at once.
        crowd: Many runs at once.
        restart: One.
    """

    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    compared: int = 0
    sizes: list[Measured] = field(default_factory=list)
    flights: list[Measured] = field(default_factory=list)
    crowd: Measured | None = None
    restart: Restart | None = None

    @property
    def ratio(self) -> Spread:
        """Throughput of SecureBench divided by that of the bare client, round by round."""
        return spread([mine / theirs for mine, theirs in zip(self.ours, self.bare, strict=True)])

    def all_measured(self) -> list[Measured]:
        """Return every run of SecureBench but those beside the bare client."""
        return [*self.sizes, *self.flights, *([self.crowd] if self.crowd is not None else [])]

    def as_json(self) -> dict[str, object]:
        """Return everything for the JSON object."""
        return {
            "ours_per_second": self.ours,
            "bare_per_second": self.bare,
            "measured": [
                each._asdict() | {"shape": each.shape._asdict(), "per_second": each.per_second}
                for each in self.all_measured()
            ],
            "restart": self.restart._asdict() if self.restart is not None else None,
        }


def rows(found: Findings) -> Iterator[Row]:
    """Yield the lines of the table, the ratio first."""
    if found.ours:
        yield from ratio_rows(found)
    for each in found.all_measured():
        yield from run_rows(each)
    if len(found.sizes) > 1:
        yield from growth_rows(found.sizes)
    if found.restart is not None:
        yield restart_row(found.restart)


def ratio_rows(found: Findings) -> Iterator[Row]:
    """Yield the throughput beside that of the bare client."""
    ratio = found.ratio
    what = f"throughput beside the bare client, {found.compared} tasks"
    yield Row(what, f"at least {MIN_RATIO}", ratio.text(), ratio.median >= MIN_RATIO)
    yield Row("  tasks per second, SecureBench", "", spread(found.ours).text(1))
    yield Row("  tasks per second, bare client", "", spread(found.bare).text(1))


def run_rows(each: Measured) -> Iterator[Row]:
    """Yield what one measurement of runs gave."""
    shape = each.shape
    runs = f"{shape.runs} runs of " if shape.runs > 1 else ""
    yield Row(f"{runs}{shape.tasks} tasks, parallelism {shape.parallelism}", "", "")
    yield Row("  tasks per second", "", f"{each.per_second:.1f}")
    yield Row("  most Pods in flight", "", str(each.in_flight))
    yield Row("  operator CPU ms per task", "", f"{each.cpu_ms:.1f}")
    yield Row("  API requests per task", "", requests_text(each))
    memory = f"{each.peak_mib:.0f} MiB"
    yield Row(
        "  operator memory", f"{MAX_MEMORY_MIB:.0f} MiB", memory, each.peak_mib <= MAX_MEMORY_MIB
    )
    decision = (
        f"{each.decision_ms:.2f} ms, {each.slow_share:.2%} above; {each.changes:.0f} changes in"
        f" each, {each.decision_ms / max(each.changes, 1):.3f} ms a change; whole run"
        f" {each.whole_ms:.0f} ms"
    )
    yield Row(
        "  decision after an event",
        f"{MAX_DECISION_MS:.0f} ms",
        decision,
        each.decision_ms <= MAX_DECISION_MS,
    )
    kib = each.status_bytes / 1024
    yield Row("  status", f"{MAX_STATUS_KIB:.0f} KiB", f"{kib:.1f} KiB", kib <= MAX_STATUS_KIB)
    yield status_row(each)


def status_row(each: Measured) -> Row:
    """Return how often status was written."""
    words = f"{each.status_writes} writes, one run every {each.status_gap:.1f} s"
    # Conditions are written at once; in a short run they are most of its writes.
    return Row("  writes of status", f"every {MIN_STATUS_SECONDS:.0f} s", words)


def requests_text(each: Measured) -> str:
    """Return requests per task, in all and by verb and kind where they are not next to nothing."""
    parts = sorted(each.requests.items(), key=lambda item: -item[1])
    told = ", ".join(f"{name} {count:.2f}" for name, count in parts if count >= 0.005)
    return f"{sum(each.requests.values()):.2f}: {told}"


def growth_rows(sizes: Sequence[Measured]) -> Iterator[Row]:
    """Yield how cost per task grows from the smallest to the largest run."""
    first, last = sizes[0], sizes[-1]
    span = f"{last.shape.tasks} tasks beside {first.shape.tasks}"
    for what, growth in (
        ("CPU", last.cpu_ms / first.cpu_ms),
        ("requests", sum(last.requests.values()) / sum(first.requests.values())),
    ):
        yield Row(
            f"{what} per task, {span}",
            f"at most {MAX_GROWTH}",
            f"{growth:.2f}",
            growth <= MAX_GROWTH,
        )


def restart_row(found: Restart) -> Row:
    """Return how long a restart took."""
    start = f"of which start {found.ready_seconds:.1f} s"
    words = f"{found.seconds:.1f} s, {start}; {found.peak_mib:.0f} MiB"
    return Row(
        f"decides again after a kill, {found.finished} finished and {found.live} live",
        f"{MAX_RESTART_SECONDS:.0f} s",
        words,
        found.seconds <= MAX_RESTART_SECONDS,
    )


def budget_table(found: Findings, title: str) -> Table:
    """Return budgets beside what was measured."""
    table = Table("what", "budget", "measured", "", title=title)
    words = {True: "met", False: "MISSED", None: ""}
    for row in rows(found):
        table.add_row(row.what, row.budget, row.measured, words[row.is_met])
    return table


def plot(sizes: Sequence[Measured], path: Path, title: str) -> None:
    """Draw cost per task against the number of tasks into an SVG file."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    tasks = [each.shape.tasks for each in sizes]
    axes.plot(tasks, [each.cpu_ms for each in sizes], "o-", label="operator CPU, ms")
    axes.set(xscale="log", xlabel="tasks of the run", ylabel="CPU ms per task", title=title)
    requests = axes.twinx()
    counts = [sum(each.requests.values()) for each in sizes]
    requests.plot(tasks, counts, "s--", color="tab:orange", label="API requests")
    requests.set(ylabel="API requests per task")
    for each in (axes, requests):
        each.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=2)
    figure.savefig(path, format="svg", metadata={"Date": None})
