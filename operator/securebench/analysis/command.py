"""``securebench report``, ``compare`` and ``export``."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Final

from securebench.analysis.comparison import (
    Comparison,
    Flip,
    attempt_flips,
    compare_all,
    compare_in_looks,
    conclusion,
    sequential_conclusion,
)
from securebench.analysis.export import ExportFormat, as_csv, as_openmetrics, write_parquet
from securebench.analysis.harbor_export import job_name, write_job
from securebench.analysis.results import ResultSet, read_results
from securebench.client.output import (
    OutputForm,
    print_line,
    print_note,
    print_notices,
    print_objects,
    print_table,
    shown_path,
)
from securebench.client.result_folder import means_folder
from securebench.client.results import fetch_results
from securebench.client.run_summary import write_summary
from securebench.client.tester_config import load_prices
from securebench.client.volume import ClusterTarget
from securebench.errors import InvalidInputError
from securebench.protocol.volume import CANDIDATES
from securebench.stats.intervals import Interval, reward_text
from securebench.stats.sequential import Course


class CompareOutput(StrEnum):
    """How comparisons are printed."""

    TEXT = "text"
    JSON = "json"


def write_report(
    runs: Sequence[str], output: Path, target: ClusterTarget, prices: Path | None = None
) -> int:
    """Write a report of runs as one HTML file.

    Args:
        runs: Result folders, or names or run ids of runs in the cluster.
        output: The file.
        prices: File with a price table; it takes precedence over those of the folders.
    """
    _require_place(output)
    with _page_libraries():
        from securebench.analysis.page import report_page  # noqa: PLC0415
    with loaded_runs(runs, target, prices) as results:
        _write(report_page(results, datetime.now(UTC)), output)
    print_line(f"written {shown_path(output)}")
    return 0


def compare_runs(
    runs: Sequence[str],
    form: CompareOutput,
    html: Path | None,
    target: ClusterTarget,
    prices: Path | None = None,
    looks: int | None = None,
) -> int:
    """Compare runs with the first of them.

    Args:
        runs: At least two, as for ``write_report``.
        form: What is printed on stdout.
        html: Also write the comparison as one HTML file.
        prices: File with a price table, as for ``write_report``.
        looks: Parts of the tasks after each of which two runs are compared; None: once.
    """
    if html is not None:
        _require_place(html)
        with _page_libraries():
            from securebench.analysis.page import comparison_page  # noqa: PLC0415
    with loaded_runs(runs, target, prices) as results:
        baseline, *others = results
        if looks is not None:
            _require_fit_for_looks(baseline, others[0])
        comparisons = compare_all(baseline, others)
        if html is not None:
            _write(comparison_page(comparisons, datetime.now(UTC)), html)
            print_note(f"written {shown_path(html)}")
    for comparison in comparisons:
        found = None if looks is None else compare_in_looks(baseline, comparison.candidate, looks)
        _print(comparison, form, found)
    return 0


def _require_fit_for_looks(baseline: ResultSet, candidate: ResultSet) -> None:
    if not baseline.has_ended:
        raise InvalidInputError(
            f"--looks needs a baseline that has ended, and {baseline.name} has not: wait for"
            " its end, or leave --looks out"
        )
    old, new = (max(entry.attempt for entry in run.entries) for run in (baseline, candidate))
    if candidate.has_ended and new < old:
        raise InvalidInputError(
            f"--looks needs all attempts of {baseline.name} ({old} per task) in {candidate.name},"
            f" which has {new}: leave --looks out, or run it with spec.attempts {old}"
        )


def diff_runs(old: str, new: str, form: OutputForm, target: ClusterTarget) -> int:
    """Print which tasks have other verdicts in a second run, for instance in a regrade.

    Args:
        old: Result folder, or name or run id of a run in the cluster.
        new: The same of the second run.
        form: Lines, or data.
    """
    with loaded_runs([old, new], target) as (before, after):
        flips = attempt_flips(before, after)
    if form.is_data:
        print_objects([_diff_json(before, after, flips)], form)
        return 0
    lost = sum(flip.candidate.passed < flip.baseline.passed for flip in flips)
    gained = sum(flip.candidate.passed > flip.baseline.passed for flip in flips)
    print_line(
        f"{len(flips)} of {len(before.by_task())} tasks flipped: {lost} lost, {gained} gained"
    )
    if flips:
        print_table(("TASK", "BEFORE", "AFTER", "WHY"), map(_flip_row, flips))
    return 0


def _diff_json(before: ResultSet, after: ResultSet, flips: Sequence[Flip]) -> dict[str, object]:
    return {
        "old": before.name,
        "new": after.name,
        "tasks": len(before.by_task()),
        "flips": [_flip_json(flip) for flip in flips],
    }


def _flip_json(flip: Flip) -> dict[str, object]:
    return {
        "task_id": flip.task_id,
        "before": flip.baseline._asdict(),
        "after": flip.candidate._asdict(),
        "why": flip.why,
    }


@contextmanager
def loaded_runs(
    runs: Sequence[str], target: ClusterTarget, prices: Path | None = None
) -> Iterator[list[ResultSet]]:
    """Read result folders; runs of the cluster are fetched into a folder that is removed."""
    table = {} if prices is None else load_prices(prices)
    with TemporaryDirectory() as scratch:
        found = []
        for number, run in enumerate(runs):
            folder, uid = Path(run), ""
            if means_folder(run):
                print_note(f"{run}: the folder {shown_path(folder)}")
            else:
                folder = Path(scratch, str(number))
                uid = _fetch(run, folder, target)
            results = replace(read_results(folder, run.rstrip("/"), table), uid=uid)
            print_notices(f"{run}: {each}" for each in results.flaws.sentences(CANDIDATES))
            found.append(results)
        yield found


def export_run(
    run: str, output: Path, form: ExportFormat, target: ClusterTarget, prices: Path | None = None
) -> int:
    """Write the attempts of a run for another program.

    Args:
        run: As for ``write_report``.
        output: The file.
        form: Its format.
        prices: File with a price table, as for ``write_report``.
    """
    _require_place(output)
    if form is ExportFormat.PARQUET:
        with _libraries("Parquet files", {"pyarrow"}, "export"):
            importlib.import_module("pyarrow")
    with loaded_runs([run], target, prices) as (results,), _replacing(output) as draft:
        if form is ExportFormat.PARQUET:
            write_parquet(results, draft)
        else:
            pieces = as_csv if form is ExportFormat.CSV else as_openmetrics
            with draft.open("wb") as sink:
                sink.writelines(pieces(results))
    print_line(f"written {shown_path(output)}")
    return 0


def export_to_harbor(
    run: str, jobs: Path, target: ClusterTarget, prices: Path | None = None
) -> int:
    """Write a run as a job folder of Harbor.

    Args:
        run: As for ``write_report``.
        jobs: The folder for it, which is made if need be.
        prices: File with a price table, as for ``write_report``.
    """
    if jobs.exists() and not jobs.is_dir():
        raise InvalidInputError(f"{jobs} is no folder; name one for jobs")
    if not jobs.exists():
        _require_place(jobs)
    with loaded_runs([run], target, prices) as (results,):
        folder = Path(shown_path(jobs), job_name(results))
        with _appearing(folder) as draft:
            count = write_job(results, draft, folder, datetime.now(UTC))
    print_line(f"written {folder}: {count} trials")
    return 0


@contextmanager
def _appearing(folder: Path) -> Iterator[Path]:
    """Give a folder to fill; it appears once it is complete, and nothing is replaced."""
    taken = InvalidInputError(f"{folder} exists; name another folder, or remove it")
    if os.path.lexists(folder):
        raise taken
    folder.parent.mkdir(exist_ok=True)
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    draft.mkdir()
    try:
        yield draft
        if os.path.lexists(folder):
            raise taken
        draft.rename(folder)
    finally:
        rmtree(draft, ignore_errors=True)


def export_to_mlflow(
    run: str,
    uri: str,
    experiment: str,
    target: ClusterTarget,
    prices: Path | None = None,
    *,
    has_artifacts: bool = False,
) -> int:
    """Make or update the MLflow run of a run.

    Args:
        run: As for ``write_report``.
        uri: URI of the tracking server.
        experiment: Name; empty for the run's benchmark id.
        prices: File with a price table, as for ``write_report``.
        has_artifacts: Whether records and summary are uploaded too.
    """
    for name, value in _MLFLOW_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with _libraries("Exports to MLflow", {"mlflow"}, "mlflow"):
        importlib.import_module("mlflow")
    from securebench.analysis.mlflow_export import log_run  # noqa: PLC0415

    with loaded_runs([run], target, prices) as (results,):
        logged = log_run(results, uri, experiment, with_artifacts=has_artifacts)
    print_notices(logged.notices)
    done = "made" if logged.is_new else "updated"
    print_line(f"{done} MLflow run {logged.run_id} in experiment {logged.experiment}")
    return 0


_MLFLOW_ENVIRONMENT: Final = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
}
"""Read by the library; what the user has set stays. By default it reports its use to its vendor,
and tries for minutes where no server answers."""


def _fetch(run: str, folder: Path, target: ClusterTarget) -> str:
    """Fetch the results of a run and return its uid."""
    fetched = asyncio.run(fetch_results(run, folder, target))
    if fetched.summary is not None:
        write_summary(fetched.summary, folder)
    return fetched.state.uid


@contextmanager
def _libraries(what: str, names: Collection[str], extra: str) -> Iterator[None]:
    """Say which extra to install where one of its libraries is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in names:
            raise
        install = f"pip install 'securebench[{extra}]'"
        raise InvalidInputError(f"{what} need {error.name}: {install}") from None


def _page_libraries() -> AbstractContextManager[None]:
    return _libraries("HTML pages", {"jinja2", "markupsafe", "matplotlib"}, "report")


def _require_place(output: Path) -> None:
    """Refuse a file that could not be written, before anything is fetched for it."""
    if output.is_dir():
        raise InvalidInputError(f"{output} is a folder; name a file")
    if not output.parent.is_dir():
        if output.parent.exists():
            raise InvalidInputError(f"{output.parent} is no folder")
        raise InvalidInputError(f"the folder {output.parent} does not exist")


def _write(pieces: Iterable[str], output: Path) -> None:
    with _replacing(output) as draft, draft.open("w", encoding="utf-8") as page:
        page.writelines(pieces)


@contextmanager
def _replacing(output: Path) -> Iterator[Path]:
    """Give a file to write; it replaces the one that exists once it is complete."""
    draft = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        yield draft
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)


def _print(comparison: Comparison, form: CompareOutput, found: Course | None) -> None:
    if form is CompareOutput.JSON:
        fields = comparison_json(comparison) | (
            {} if found is None else {"looks": looks_json(found)}
        )
        sys.stdout.write(json.dumps(fields, sort_keys=True) + "\n")
        return
    print_notices(comparison.warnings)
    for run, score in (
        (comparison.baseline, comparison.baseline_score),
        (comparison.candidate, comparison.candidate_score),
    ):
        print_line(_score_line(run, score))
    print_line(conclusion(comparison))
    if found is not None:
        print_line(sequential_conclusion(comparison.candidate, found))
    if left_out := _left_out(comparison):
        print_line(left_out)
    if comparison.flips:
        print_table(("TASK", "BEFORE", "AFTER", "WHY"), map(_flip_row, comparison.flips))


def _score_line(run: ResultSet, score: Interval | None) -> str:
    spent = "" if run.cost is None else f", cost {run.cost.summary}"
    if score is None:
        return f"{run.name}: no verdict{spent}"
    if run.tries > 1:
        spent += f", run {run.tries} of this agent and model on this pack"
    if run.tries_by_others:
        spent += f", {run.tries_by_others} more by others"
    if run.mean_reward is not None:
        spent = f", mean reward {reward_text(run.mean_reward)}{spent}"
    value, low, high = (f"{share * 100:.1f}" for share in score)
    return f"{run.name}: passed {value} % (95 % interval {low} to {high}){spent}"


def _left_out(comparison: Comparison) -> str:
    counts = {
        f"only in {comparison.baseline.name}": comparison.only_baseline,
        f"only in {comparison.candidate.name}": comparison.only_candidate,
        "with another row": comparison.changed_rows,
    }
    parts = [f"{count} {which}" for which, count in counts.items() if count]
    return f"not compared: tasks with a verdict {', '.join(parts)}" if parts else ""


def _flip_row(flip: Flip) -> tuple[str, ...]:
    before, after = (f"{each.passed}/{each.verified}" for each in (flip.baseline, flip.candidate))
    return flip.task_id, before, after, flip.why


def comparison_json(comparison: Comparison) -> dict[str, object]:
    """Return a comparison as a JSON object; ``difference`` is null without a common task."""
    found = comparison.difference
    return {
        "baseline": comparison.baseline.name,
        "candidate": comparison.candidate.name,
        "scores": [_interval(comparison.baseline_score), _interval(comparison.candidate_score)],
        "mean_rewards": [
            _interval(comparison.baseline.mean_reward),
            _interval(comparison.candidate.mean_reward),
        ],
        "costs": [_cost(comparison.baseline), _cost(comparison.candidate)],
        "have_ended": [comparison.baseline.has_ended, comparison.candidate.has_ended],
        "difference": None if found is None else found._asdict(),
        "comparisons": comparison.compared,
        "corrected_p_value": comparison.p_value,
        "only_baseline": comparison.only_baseline,
        "only_candidate": comparison.only_candidate,
        "changed_rows": comparison.changed_rows,
        "flips": [_flip_json(flip) for flip in comparison.flips],
        "warnings": list(comparison.warnings),
    }


def looks_json(found: Course) -> dict[str, object]:
    """Return the looks at a comparison as a JSON object; ``decided_at`` is null if none decides."""
    decision = found.decision
    return {
        "planned": found.planned,
        "tasks": found.tasks,
        "done": found.done,
        "decided_at": None if decision is None else decision.number,
        "taken": [look._asdict() for look in found.taken],
    }


def _cost(run: ResultSet) -> dict[str, object] | None:
    return None if run.cost is None else run.cost._asdict()


def _interval(score: Interval | None) -> dict[str, float] | None:
    return None if score is None else score._asdict()
