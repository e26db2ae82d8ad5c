"""A model provider that fails in the middle of runs; `make provider-failures` prints the table.

Of every run one task fails, after its agent has read it, and the others are solved. The exit code
is 1 where the failure became something else than the table of CASES says, or befell another task.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from e2e.release import Record, Release, condition
from outside.release import begin_agent, outside_release

RETRIES = 1
"""providerRetries of every run."""
SECONDS = 1500
AT_ONCE = 3
PACKS = {"codex": "code-completion-smoke", "claude_code": "terminal-task-smoke"}
VICTIMS = {"codex": "digit-sum", "claude_code": "settings-port"}
TASKS = {"codex": 3, "claude_code": 3}
"""The first so many of the pack."""
COLUMNS = ("agent", "failure", "outcome", "reason", "launches", "requests", "others", "")

Want = tuple[str, str, int]


class Case(NamedTuple):
    """One failure, and what becomes of the task: outcome, reason, launches."""

    agent: str
    failure: str
    want: Want


PASSED: Want = ("scored", "", 1)
LAUNCHES = 1 + RETRIES
CASES = tuple(
    Case(agent, failure, want)
    for agent in PACKS
    for failure, want in (
        ("401", ("provider", "provider_auth", LAUNCHES)),
        ("403", ("provider", "provider_auth", LAUNCHES)),
        ("429-once", PASSED),
        ("429", ("provider", "provider_quota", LAUNCHES)),
        ("500-once", PASSED),
        ("500", ("provider", "provider_unavailable", LAUNCHES)),
        ("reset-once", PASSED),
        ("reset", ("provider", "provider_unavailable", LAUNCHES)),
        ("cut-once", PASSED),
        ("cut", ("provider", "provider_unavailable", LAUNCHES)),
    )
)


class Seen(NamedTuple):
    """What became of a case."""

    case: Case
    got: Want
    requests: int
    others: list[Record]

    @property
    def is_right(self) -> bool:
        """Whether the failure became what it must, and befell nobody else."""
        honest = all(record.get("passed") is True for record in self.others)
        return self.got == self.case.want and honest


def begin(installed: Release, case: Case) -> str:
    """Start the run of a case."""
    model = f"script-{case.failure}+{VICTIMS[case.agent]}"
    return begin_agent(
        installed,
        PACKS[case.agent],
        case.agent,
        model,
        providerRetries=RETRIES,
        taskSelector={"limit": TASKS[case.agent]},
        retention={"pods": "Failed"},
    )


def seen(installed: Release, case: Case, name: str) -> Seen:
    """Wait for the end of a case's run."""
    ended = condition(installed.wait_ended(name, SECONDS))
    assert ended["reason"] in {"Completed", "Incomplete"}, f"{name}: {ended}"
    records = installed.records(name)
    (victim,) = (each for each in records if each["task_id"] == VICTIMS[case.agent])
    others = [each for each in records if each is not victim]
    got = (str(victim["outcome"]), victim.get("failure_reason", ""), int(victim["launches"]))
    usage = victim["producer_metadata"].get("usage", {})
    return Seen(case, got, int(usage.get("requests", 0)), others)


def run_cases(installed: Release, cases: tuple[Case, ...]) -> Iterator[Seen]:
    """Run the cases, a few at a time, and yield what became of each."""
    for first in range(0, len(cases), AT_ONCE):
        chosen = cases[first : first + AT_ONCE]
        names = [begin(installed, case) for case in chosen]
        for case, name in zip(chosen, names, strict=True):
            yield seen(installed, case, name)


def row(found: Seen) -> list[str]:
    """Return the cells of one case."""
    outcome, reason, launches = found.got
    passed = sum(record.get("passed") is True for record in found.others)
    mark = "[green]ok[/]" if found.is_right else f"[red]want {found.case.want}[/]"
    numbers = [str(launches), str(found.requests), f"{passed} of {len(found.others)} passed"]
    return [found.case.agent, found.case.failure, outcome, reason, *numbers, mark]


def main(failures: list[str]) -> int:
    """Run the cases (those of some failures only, where some are named) and print the table."""
    console = Console(width=140)
    table = Table(*COLUMNS)
    cases = tuple(case for case in CASES if not failures or case.failure in failures)
    found: list[Seen] = []
    with outside_release("sb-failures", {"settings.launch.retryBackoffSeconds": 1}) as installed:
        for each in run_cases(installed, cases):
            found.append(each)
            table.add_row(*row(each))
            console.print(f"{each.case.agent} {each.case.failure}: {each.got}", highlight=False)
    console.print(table)
    right = sum(each.is_right for each in found)
    console.print(f"provider failures: {right} of {len(found)} as they must be")
    return 0 if right == len(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
