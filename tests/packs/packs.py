"""Every runnable pack with its own answers and with none; `make packs` prints the table.

An oracle must score 1.0 and a nop 0.0, else the exit code is 1. Needs an installed chart and the
images of the packs.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from securebench.audit.command import Trial, TrialKind, run_trial
from securebench.client.volume import ClusterTarget
from securebench.errors import SecureBenchError

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

RUNNABLE = (
    "code-completion-smoke",
    "humaneval-mini",
    "mmlu-abstract-algebra-mini",
    "multiple-choice-smoke",
    "squad-short-answer-mini",
    "truthfulqa-free-response-mini",
    "terminal-task-smoke",
    "agentbench-os-mini",
    "terminal-bench-first10",
    "real-bugs-mini",
)
"""Packs whose images are all there; the images of the others are public and not built here."""

COLUMNS = ("pack", "family", "tasks", "oracle", "nop", "s/task oracle", "s/task nop", "")
WANTED: dict[TrialKind, float] = {"oracle": 1.0, "nop": 0.0}


@dataclass(frozen=True, slots=True)
class Pair:
    """Both trials of a pack, or the line that says why one is missing."""

    pack: str
    trials: dict[TrialKind, Trial]
    problem: str

    @property
    def is_right(self) -> bool:
        """Whether both scores are what they must be."""
        return not self.problem and all(
            self.trials[kind].score == score for kind, score in WANTED.items()
        )


async def pair(place: ClusterTarget, name: str) -> Pair:
    """Run both trials of one pack, one after the other, so that the seconds mean something."""
    trials: dict[TrialKind, Trial] = {}
    try:
        for kind in WANTED:
            trials[kind] = await run_trial(place, BENCHMARKS / name, kind)
    except SecureBenchError as error:
        return Pair(name, trials, str(error))
    return Pair(name, trials, "")


def row(found: Pair) -> list[str]:
    """Return the cells of one pack."""
    known = next(iter(found.trials.values()), None)
    families = () if known is None else sorted(set(known.family_by_task.values()))
    trials = [found.trials.get(kind) for kind in WANTED]
    return [
        found.pack,
        ", ".join(families) or "?",
        "?" if known is None else str(known.tasks),
        *("?" if each is None else score(each) for each in trials),
        *("?" if each is None else f"{each.seconds / max(each.tasks, 1):.1f}" for each in trials),
        "ok" if found.is_right else "[red]wrong[/]",
    ]


def score(trial: Trial) -> str:
    """Return a score as the table shows it."""
    return "none" if trial.score is None else f"{trial.score:.3f}".rstrip("0").ljust(3, "0")


def failures(found: Pair) -> list[str]:
    """Return one line for each record that is not what it must be, and for a missing trial."""
    lines = [f"{found.pack}: {found.problem}"] if found.problem else []
    for kind, trial in found.trials.items():
        for record in trial.records:
            if record.get("passed") is not (WANTED[kind] == 1.0):
                why = record.get("failure_reason") or record.get("outcome")
                lines.append(f"{found.pack}: {kind}: {record.get('task_id')}: {why}")
    return lines


async def main(names: list[str], place: ClusterTarget) -> int:
    """Run the packs, print the table and return the exit code."""
    console = Console()
    table = Table(*COLUMNS)
    pairs = []
    for name in names:
        found = await pair(place, name)
        pairs.append(found)
        table.add_row(*row(found))
        console.print(f"{name}: {'ok' if found.is_right else 'wrong'}", highlight=False)
    console.print(table)
    for found in pairs:
        for line in failures(found):
            console.print(line, markup=False, highlight=False)
    right = sum(found.is_right for found in pairs)
    console.print(f"packs: {right} of {len(pairs)} with oracle 1.0 and nop 0.0")
    return 0 if right == len(pairs) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packs", nargs="*", default=list(RUNNABLE))
    parser.add_argument("--namespace")
    options = parser.parse_args()
    sys.exit(asyncio.run(main(options.packs, ClusterTarget(options.namespace))))
