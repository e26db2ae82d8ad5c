"""`securebench audit` on every pack of ours, and on the bad pack; `make audits` prints the table.

No finding of ours may have failed; of the bad pack exactly those of its findings.json must have.
Needs an installed chart, and the images of all these packs on the cluster and as archives.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from packs import BENCHMARKS, RUNNABLE
from securebench.audit.command import REPORT_FILE

BAD = Path(__file__).parent / "bad-pack"
BY_CHANCE = ("oracle", "task 'flaky'")
"""Found where the flaky task fails in the first run, which is the one that this rule looks at."""
RUNS = 2
RUNS_OF_CHANCE = 6
"""Runs of the bad pack of each kind: that all agree in spite of its flaky task is 1 in 32."""

Finding = tuple[str, str]
"""Rule and object."""


@dataclass(frozen=True, slots=True)
class Audited:
    """What an audit of one pack said.

    Attributes:
        code: Exit code.
        failed: What it found.
        passed: Number of findings that passed.
        not_checked: What was not looked at, as rule and message.
        seconds: From start to end.
        said: The output, where there is no report.
    """

    code: int
    failed: frozenset[Finding]
    passed: int
    not_checked: tuple[Finding, ...]
    seconds: float
    said: str = ""

    def is_as(self, want: frozenset[Finding]) -> bool:
        """Tell whether exactly this was found; what chance decides may be there or not."""
        code = 1 if want else 0
        return not self.said and self.code == code and self.failed - {BY_CHANCE} == want


def audited(folder: Path, images: Path, namespace: str | None, runs: int) -> Audited:
    """Audit one pack; without runs only what needs no cluster."""
    options = ["--runs", str(runs)] if runs else ["--static"]
    options += ["--namespace", namespace] if namespace else []
    begun = time.monotonic()
    with TemporaryDirectory(prefix="securebench-audits-") as output:
        places = ["--images", str(images), "--output-dir", output]
        command = ["securebench", "audit", str(folder), *places, *options]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - begun
        path = Path(output) / REPORT_FILE
        if not path.exists():
            said = ended.stdout + ended.stderr
            return Audited(ended.returncode, frozenset(), 0, (), seconds, said)
        found = json.loads(path.read_text())["findings"]
    failed, passed, not_checked = (
        [each for each in found if each["outcome"] == outcome]
        for outcome in ("failed", "passed", "not_checked")
    )
    place = f"{folder.resolve()}/"
    return Audited(
        code=ended.returncode,
        failed=frozenset((each["rule"], each["object"].removeprefix(place)) for each in failed),
        passed=len(passed),
        not_checked=tuple((each["rule"], each["message"]) for each in not_checked),
        seconds=seconds,
    )


def bad_findings() -> frozenset[Finding]:
    """Return what must be found in the bad pack."""
    listed = json.loads((BAD / "findings.json").read_text())
    return frozenset((each["rule"], each["object"]) for each in listed)


def folders() -> dict[Path, int]:
    """Return all packs, and how often each is run."""
    ours = sorted(path.parent for path in BENCHMARKS.glob("*/manifest.yaml"))
    runs = {path: RUNS if path.name in RUNNABLE else 0 for path in ours}
    return {**runs, BAD: RUNS_OF_CHANCE}


def cells(name: str, found: Audited, *, is_right: bool) -> tuple[str, ...]:
    """Return a row of the table."""
    numbers = (found.passed, len(found.failed), len(found.not_checked), round(found.seconds))
    return (name, *map(str, numbers), "ok" if is_right else "[red]wrong[/]")


def lines(name: str, found: Audited, want: frozenset[Finding]) -> Iterator[str]:
    """Yield what was not looked at, and every finding that is not as it must be."""
    for rule, message in found.not_checked:
        yield f"{name}: {rule} not checked: {message}"
    for rule, place in sorted(found.failed ^ want):
        which = "found" if (rule, place) in found.failed else "not found"
        yield f"{name}: {which}: {rule}: {place}"
    if found.said:
        yield f"{name}: {found.said}"


def main(names: list[str], images: Path, namespace: str | None) -> int:
    """Audit the packs with these names, or all; print the table and return the exit code."""
    console = Console()
    table = Table("pack", "passed", "failed", "not checked", "seconds", "")
    right = []
    chosen = {path: runs for path, runs in folders().items() if not names or path.name in names}
    for folder, runs in chosen.items():
        want = bad_findings() if folder == BAD else frozenset()
        found = audited(folder / "pack" if folder == BAD else folder, images, namespace, runs)
        right.append(found.is_as(want))
        table.add_row(*cells(folder.name, found, is_right=right[-1]))
        for line in lines(folder.name, found, want):
            console.print(line, markup=False, highlight=False)
    console.print(table)
    console.print(f"audits: {sum(right)} of {len(right)} packs as they must be")
    return 0 if all(right) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packs", nargs="*")
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--namespace")
    options = parser.parse_args()
    if unknown := set(options.packs) - {path.name for path in folders()}:
        parser.error(f"no such pack: {', '.join(sorted(unknown))}")
    sys.exit(main(options.packs, options.images, options.namespace))
