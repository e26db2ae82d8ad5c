"""What the rounds gave, as tables and as one JSON object."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.table import Table

from bench.cpu import MACHINE
from bench.spread import Spread, ratios, spread

OURS = "SecureBench"


@dataclass(frozen=True)
class Sample:
    """One run of the floor or of SecureBench; everything is per task.

    Attributes:
        seconds: From the first request to the last result; ours with start and canary.
        working_seconds: Ours from the first launch to the last record.
        cpu: CPU seconds by who spent them.
        requests: To the API server, by verb and kind where the operator tells.
    """

    seconds: float
    working_seconds: float
    cpu: Mapping[str, float]
    requests: Mapping[str, float]


@dataclass
class Rounds:
    """All rounds of one kind of task at one number in flight.

    Attributes:
        kind: Name of the kind.
        parallelism: Tasks in flight.
        tasks: Of one run.
        samples: By name of the floor's shape, or ``OURS``.
    """

    kind: str
    parallelism: int
    tasks: int
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def seconds(self, name: str) -> list[float]:
        """Return the seconds per task, round by round."""
        return [each.seconds for each in self.samples[name]]

    def ratio(self, shape: str) -> Spread:
        """Return the ratio of whole runs to a shape of the floor."""
        return ratios(self.seconds(OURS), self.seconds(shape))

    def working_ratio(self, shape: str) -> Spread:
        """Return the same without the run's start and end."""
        working = [each.working_seconds for each in self.samples[OURS]]
        return ratios(working, self.seconds(shape))

    def cpu(self, name: str) -> dict[str, float]:
        """Return CPU seconds per task by who spent them, medians over the rounds."""
        return medians(each.cpu for each in self.samples[name])

    def requests(self, name: str) -> dict[str, float]:
        """Return requests per task by verb and kind, medians over the rounds."""
        return medians(each.requests for each in self.samples[name])

    def as_json(self) -> dict[str, object]:
        """Return everything for the JSON object."""
        floors = [name for name in self.samples if name != OURS]
        return {
            "kind": self.kind,
            "parallelism": self.parallelism,
            "tasks": self.tasks,
            "ratio": {name: self.ratio(name)._asdict() for name in floors},
            "ratio_without_start": {name: self.working_ratio(name)._asdict() for name in floors},
            "seconds_per_task": {name: self.seconds(name) for name in self.samples},
            "cpu_seconds_per_task": {name: self.cpu(name) for name in self.samples},
            "requests_per_task": {name: self.requests(name) for name in self.samples},
        }


def medians(found: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each name's values; a name that a round lacks counts as 0 there."""
    rounds = list(found)
    names = dict.fromkeys(name for each in rounds for name in each)
    return {name: statistics.median(each.get(name, 0.0) for each in rounds) for name in names}


def ratio_table(results: Sequence[Rounds], operator: str) -> Table:
    """Return the ratios to the floor, and what a task costs.

    Args:
        results: The rounds.
        operator: Whose CPU seconds stand in the last column.
    """
    table = Table(
        "tasks",
        "in flight",
        "ratio",
        "without start",
        "floor",
        "floor s/task",
        "ours s/task",
        "API requests/task",
        "operator CPU ms/task",
        title="SecureBench beside the bare floor: median (least to greatest) of the rounds",
    )
    for each in results:
        for shape in (name for name in each.samples if name != OURS):
            table.add_row(
                f"{each.tasks} {each.kind}",
                str(each.parallelism),
                each.ratio(shape).text(),
                each.working_ratio(shape).text(),
                shape,
                spread(each.seconds(shape)).text(),
                spread(each.seconds(OURS)).text(),
                f"{sum(each.requests(OURS).values()):.1f}",
                f"{each.cpu(OURS)[operator] * 1000:.0f}",
            )
    return table


def cpu_table(each: Rounds) -> Table:
    """Return CPU seconds per task by who spent them, of the floor and of ours."""
    table = Table(
        "CPU seconds per task",
        *each.samples,
        title=f"{each.tasks} {each.kind}, {each.parallelism} in flight",
    )
    found = {name: each.cpu(name) for name in each.samples}
    names = dict.fromkeys(who for cpu in found.values() for who in cpu if who != MACHINE)
    for who in (MACHINE, *names):
        table.add_row(who, *(f"{cpu.get(who, 0.0):.3f}" for cpu in found.values()))
    return table


def request_table(results: Sequence[Rounds]) -> Table:
    """Return the operator's requests per task by verb and kind."""
    found = [each.requests(OURS) for each in results]
    titles = [f"{each.tasks} {each.kind}, {each.parallelism} in flight" for each in results]
    table = Table("API requests per task", *titles)
    for name in sorted({name for requests in found for name in requests}):
        table.add_row(name, *(f"{requests.get(name, 0.0):.2f}" for requests in found))
    return table


def steps_table(title: str, steps: Iterable[tuple[str, Spread]]) -> Table:
    """Return the steps of a task or a run, in milliseconds."""
    table = Table(title, "ms: median (least to greatest)")
    for words, values in steps:
        table.add_row(words, values.text(0))
    return table
