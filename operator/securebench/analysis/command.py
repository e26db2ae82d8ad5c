"""``securebench report`` and ``securebench compare``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from securebench.analysis.comparison import Comparison, Flip, compare, verdict_sentence
from securebench.analysis.results import ResultSet, read_results
from securebench.client.commands.output import print_line, print_note, print_notices, print_table
from securebench.client.commands.results import fetch_results
from securebench.client.terminal_text import shown_path
from securebench.client.volume.connection import ClusterTarget
from securebench.core.errors import InvalidInputError
from securebench.protocol.volume import CANDIDATES
from securebench.stats.intervals import Interval

_EXTRA = "pip install 'securebench[report]'"
"""What installs the libraries of HTML pages."""


class CompareOutput(StrEnum):
    """How comparisons are printed."""

    TEXT = "text"
    JSON = "json"


def write_report(runs: Sequence[str], output: Path, target: ClusterTarget) -> int:
    """Write a report of runs as one HTML file.

    Args:
        runs: Result folders, or names or run ids of runs in the cluster.
        output: The file.
        target: Namespace of the runs.
    """
    with _page_libraries():
        from securebench.analysis.page import report_page  # noqa: PLC0415
    with _loaded(runs, target) as results:
        _write(report_page(results, datetime.now(UTC)), output)
    return 0


def compare_runs(
    runs: Sequence[str], form: CompareOutput, html: Path | None, target: ClusterTarget
) -> int:
    """Compare runs with the first of them.

    Args:
        runs: At least two, as for ``write_report``.
        form: What is printed on stdout.
        html: Also write the comparison as one HTML file.
        target: Namespace of the runs.
    """
    with _loaded(runs, target) as results:
        first, *others = results
        comparisons = [compare(first, other) for other in others]
        if html is not None:
            with _page_libraries():
                from securebench.analysis.page import comparison_page  # noqa: PLC0415
            _write(comparison_page(comparisons, datetime.now(UTC)), html)
    for comparison in comparisons:
        _print(comparison, form)
    return 0


@contextmanager
def _loaded(runs: Sequence[str], target: ClusterTarget) -> Iterator[list[ResultSet]]:
    """Read result folders; runs of the cluster are fetched into a folder that is removed."""
    with TemporaryDirectory() as scratch:
        found = []
        for number, run in enumerate(runs):
            folder = Path(run)
            if not folder.is_dir():
                print_note(f"{run} is no folder here: asking the cluster for a run of this name")
                folder = Path(scratch, str(number))
                asyncio.run(fetch_results(run, folder, target))
            results = read_results(folder, run.rstrip("/"))
            if results.damaged:
                print_notices([f"{run}: {results.damaged} damaged lines of {CANDIDATES} left out"])
            found.append(results)
        yield found


@contextmanager
def _page_libraries() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in {"jinja2", "markupsafe", "matplotlib"}:
            raise
        raise InvalidInputError(f"HTML pages need {error.name}: {_EXTRA}") from None


def _write(pieces: Iterable[str], output: Path) -> None:
    """Write a page; a file that exists is replaced once the new one is complete."""
    draft = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        with draft.open("w", encoding="utf-8") as page:
            page.writelines(pieces)
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)
    print_line(f"written {shown_path(output)}")


def _print(comparison: Comparison, form: CompareOutput) -> None:
    if form is CompareOutput.JSON:
        sys.stdout.write(json.dumps(comparison_json(comparison), sort_keys=True) + "\n")
        return
    print_line(verdict_sentence(comparison))
    print_notices(comparison.warnings)
    if comparison.flips:
        print_table(("TASK", "BEFORE", "AFTER", "WHY"), map(_flip_row, comparison.flips))


def _flip_row(flip: Flip) -> tuple[str, ...]:
    before, after = (f"{each.passed}/{each.verified}" for each in (flip.before, flip.after))
    return flip.task_id, before, after, flip.why


def comparison_json(comparison: Comparison) -> dict[str, object]:
    """Return a comparison as a JSON object; ``difference`` is null without a common task."""
    found = comparison.difference
    return {
        "first": comparison.first.name,
        "second": comparison.second.name,
        "scores": [_interval(comparison.before), _interval(comparison.after)],
        "difference": None if found is None else found._asdict(),
        "only_first": comparison.only_before,
        "only_second": comparison.only_after,
        "flips": [
            {
                "task_id": flip.task_id,
                "before": flip.before._asdict(),
                "after": flip.after._asdict(),
                "why": flip.why,
            }
            for flip in comparison.flips
        ],
        "warnings": list(comparison.warnings),
    }


def _interval(score: Interval | None) -> dict[str, float] | None:
    return None if score is None else score._asdict()
