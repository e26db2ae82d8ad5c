"""Cost of isolation per code task: candidate and tests apart, or in one interpreter.

Runs humaneval-mini with its own answers, once as it is and once with ``tests.isolation: shared``,
without ``tests.repeat`` in both, and prints seconds of the check and of the whole attempt. Needs an
installed chart in the namespace SECUREBENCH_NAMESPACE.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from securebench.audit.command import Trial, run_trial
from securebench.client.volume import ClusterTarget

PACK = Path(__file__).parents[2] / "benchmarks" / "humaneval-mini"
MODES = ("separate", "shared")
PARALLELISM = (1, 4)
COLUMNS = ("isolation", "parallelism", "tasks", "passed", "check s (median)", "attempt s (median)")


def copy_of(folder: Path, mode: str) -> Path:
    """Return a copy of the pack in which every task has this isolation and no repeated calls."""
    pack = folder / mode
    shutil.copytree(PACK, pack)
    rows = [json.loads(line) for line in (pack / "tasks.jsonl").read_text().splitlines()]
    for row in rows:
        row["eval"]["tests"].pop("repeat", None)
        row["eval"]["tests"]["isolation"] = mode
    (pack / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return pack


def seconds(trial: Trial, part: str) -> Iterator[float]:
    """Yield the duration of a part of each record."""
    for record in trial.records:
        fields = record[part]
        if isinstance(fields, dict):
            yield float(fields["duration_seconds"])


async def main(place: ClusterTarget) -> None:
    """Run both modes side by side in turn and print one row for each."""
    table = Table(*COLUMNS)
    with TemporaryDirectory(prefix="securebench-isolation-") as folder:
        packs = {mode: copy_of(Path(folder), mode) for mode in MODES}
        for parallelism in PARALLELISM:
            for mode, pack in packs.items():
                trial = await run_trial(place, pack, "oracle", parallelism=parallelism)
                table.add_row(
                    mode,
                    str(parallelism),
                    str(trial.tasks),
                    str(trial.passed),
                    f"{statistics.median(seconds(trial, 'verifier_metadata')):.2f}",
                    f"{statistics.median(seconds(trial, 'timing')):.2f}",
                )
    Console().print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespace")
    asyncio.run(main(ClusterTarget(parser.parse_args().namespace)))
