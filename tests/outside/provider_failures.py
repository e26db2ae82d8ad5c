"""A model provider that fails in the middle of runs; `make provider-failures` prints the table.

In every run some tasks fail, each in its own way and after its agent has read it, and the others
are solved. The exit code is 1 where a failure became something else than CASES says, or where a run
did not say by an Event that its agents wait for the provider.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from securebench.run.observe.waiting import PROVIDER
from support.outside_release import begin_agent, outside_release
from support.release import Record, Release, condition

RETRIES = 1
"""providerRetries of every run."""
SECONDS = 900
TASKS = {
    "codex": (
        "code-completion-smoke",
        ("digit-sum", "stack-class", "prime-generator", "retry-decorator", "merge-in-place"),
    ),
    "claude_code": (
        "terminal-task-smoke",
        ("csv-totals", "settings-port", "urgent-minutes", "peak-logins", "starter-slug"),
    ),
}
"""Pack and tasks by agent; the last task is solved in every run."""
VICTIMS = 4
"""Failures in one run."""
COLUMNS = ("agent", "failure", "task", "outcome", "reason", "launches", "requests", "")

Want = tuple[str, str, int]


class Case(NamedTuple):
    """One failure, and what becomes of its task: outcome, reason, launches."""

    failure: str
    want: Want


PASSED: Want = ("scored", "", 1)
LAUNCHES = 1 + RETRIES
CASES = (
    Case("401", ("provider", "provider_auth", LAUNCHES)),
    Case("429-once", PASSED),
    Case("500", ("provider", "provider_unavailable", LAUNCHES)),
    Case("cut-once", PASSED),
    Case("403", ("provider", "provider_auth", LAUNCHES)),
    Case("500-once", PASSED),
    Case("429", ("provider", "provider_quota", LAUNCHES)),
    Case("reset-once", PASSED),
    Case("cut", ("provider", "provider_unavailable", LAUNCHES)),
    Case("reset", ("provider", "provider_unavailable", LAUNCHES)),
)
HONEST = Case("none", PASSED)
LONG = {"429", "500", "cut", "reset"}
"""Failures that agents ask again after for longer than the 5 s within which a run says so."""


class Mixed(NamedTuple):
    """One run: its cases by task, the honest one included."""

    agent: str
    name: str
    cases: dict[str, Case]


class Seen(NamedTuple):
    """What became of a task."""

    agent: str
    task: str
    case: Case
    got: Want
    requests: int

    @property
    def is_right(self) -> bool:
        """Whether the failure became what it must."""
        return self.got == self.case.want


def begin(installed: Release, agent: str, cases: Sequence[Case]) -> Mixed:
    """Start a run in which each of some cases befalls a task of its own."""
    pack, tasks = TASKS[agent]
    victims = dict(zip(tasks, cases, strict=False))
    model = "script-" + "_".join(f"{case.failure}+{task}" for task, case in victims.items())
    chosen = {**victims, tasks[-1]: HONEST}
    name = begin_agent(
        installed,
        pack,
        agent,
        model,
        providerRetries=RETRIES,
        parallelism=len(chosen),
        taskSelector={"include": sorted(chosen)},
        retention={"pods": "Failed"},
    )
    return Mixed(agent, name, chosen)


def seen(installed: Release, run: Mixed) -> Iterator[Seen]:
    """Wait for the end of a run and yield what became of its tasks."""
    ended = condition(installed.wait_ended(run.name, SECONDS))
    assert ended["reason"] in {"Completed", "Incomplete"}, f"{run.name}: {ended}"
    for record in installed.records(run.name):
        task = record["task_id"]
        got = (record["outcome"], reason(record), record["launches"])
        usage = record["producer_metadata"].get("usage", {})
        yield Seen(run.agent, task, run.cases[task], got, int(usage.get("requests", 0)))


def is_silent(installed: Release, run: Mixed) -> bool:
    """Whether a run in which an agent waited for long said nothing of it."""
    if not LONG.intersection(case.failure for case in run.cases.values()):
        return False
    found = json.loads(installed.kubectl("get", "events.events.k8s.io", "-o", "json"))["items"]
    notes = [each["note"] for each in found if each["regarding"].get("name") == run.name]
    return not any(note.startswith(PROVIDER) for note in notes)


def reason(record: Record) -> str:
    """Return why a record did not pass."""
    return "" if record.get("passed") else str(record.get("failure_reason") or "not passed")


def row(found: Seen) -> list[str]:
    """Return the cells of one task."""
    outcome, why, launches = found.got
    mark = "[green]ok[/]" if found.is_right else f"[red]want {found.case.want}[/]"
    numbers = (str(launches), str(found.requests))
    return [found.agent, found.case.failure, found.task, outcome, why, *numbers, mark]


def main(failures: list[str]) -> int:
    """Run the cases (those of some failures only, where some are named) and print the table."""
    console = Console(width=140)
    table = Table(*COLUMNS)
    cases = tuple(case for case in CASES if not failures or case.failure in failures)
    found: list[Seen] = []
    silent: list[str] = []
    with outside_release("sb-failures", {"settings.launch.retryBackoffSeconds": 1}) as installed:
        for first in range(0, len(cases), VICTIMS):
            chosen = cases[first : first + VICTIMS]
            for run in [begin(installed, agent, chosen) for agent in TASKS]:
                found += seen(installed, run)
                silent += [run.name] if is_silent(installed, run) else []
    for each in found:
        table.add_row(*row(each))
    console.print(table)
    right = sum(each.is_right for each in found)
    console.print(f"provider failures: {right} of {len(found)} as they must be")
    for name in silent:
        console.print(f"{name}: nothing told of the wait for the provider")
    return 1 if silent or right != len(found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
