"""``securebench results``: fetch records and summary from the results volume."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from securebench.benchmark.files.bundle import require_digest
from securebench.client.inspection.fail_below import score_code
from securebench.client.inspection.find import find_state
from securebench.client.output import print_error, print_line, print_note, print_table
from securebench.client.output_formats import OutputForm, print_objects
from securebench.client.session.run_cost import cost_fields
from securebench.client.session.run_summary import (
    TesterRunSummary,
    localized_summary,
    parse_summary,
    write_summary,
)
from securebench.client.submit.prices import load_prices
from securebench.client.terminal_text import shown_path
from securebench.client.volume.connection import (
    ClusterTarget,
    Connection,
    open_connection,
    open_published,
)
from securebench.client.volume.output_folder import make_output_folder
from securebench.client.volume.record_mirror import RecordMirror, read_records
from securebench.client.watch.follow import RunState, published_sha256
from securebench.cluster.port import ObjectKind
from securebench.errors import InvalidInputError, PermanentClusterError
from securebench.protocol.volume import CANDIDATES, SUMMARY
from securebench.run.records.reading import Record, counts_line, failure, reason_counts
from securebench.run.records.summary import record_facts, run_summary

_ATTEMPT_HEADER = ("TASK", "ATTEMPT", "STATUS", "SCORE", "OUTCOME", "REASON")


class ResultOptions(NamedTuple):
    """How results are shown and judged.

    Args:
        form: The result line, a table of attempts with it, or the summary as data.
        fail_below: Smallest score that is accepted; None accepts every score.
        prices: File with a price table, for the cost.
    """

    form: OutputForm = OutputForm.TEXT
    fail_below: float | None = None
    prices: Path | None = None


def results(
    run: str, output_dir: Path | None, options: ResultOptions, target: ClusterTarget
) -> int:
    """Fetch the records and, once it has ended, the summary of a run.

    Args:
        run: Name of a BenchmarkRun, even a deleted one, or a run id.
        output_dir: Output folder; by default a folder with the run's name.
        options: How they are shown and judged.
        target: Namespace of the run.
    """
    return asyncio.run(_results(run, output_dir or Path(run), options, target))


async def fetch_results(run: str, folder: Path, target: ClusterTarget) -> Fetched:
    """Fetch the records of a run into a folder; without the tester's rights the published ones."""
    try:
        async with open_connection(target) as connection:
            return await _fetch(connection, run, folder)
    except PermanentClusterError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        async with open_published(target) as connection:
            return await _fetch_published(connection, run, folder)


async def _results(run: str, folder: Path, options: ResultOptions, target: ClusterTarget) -> int:
    table = {} if options.prices is None else load_prices(options.prices)
    fetched = await fetch_results(run, folder, target)
    if fetched.summary is None:
        return _unfinished(fetched, run, folder)
    raw = fetched.summary | cost_fields(folder / CANDIDATES, table)
    write_summary(raw, folder)
    summary = parse_summary(raw)
    if options.form is OutputForm.WIDE:
        print_table(_ATTEMPT_HEADER, map(_attempt_row, read_records(folder / CANDIDATES)))
    print_reasons(folder / CANDIDATES)
    print_figures(summary)
    code = score_code(summary.passed, summary.verified, options.fail_below)
    if not options.form.is_data:
        return print_result(summary) or code
    print_objects([raw], options.form)
    return told_missing(summary) or code


def _attempt_row(record: Record) -> tuple[str, ...]:
    why = failure(record)
    return (
        str(record.get("task_id")),
        str(record.get("attempt")),
        str(record.get("verification_status")),
        str(record.get("score", "")),
        str(record.get("outcome") or ""),
        "" if why is None else why.reason,
    )


async def _fetch(connection: Connection, run: str, folder: Path) -> Fetched:
    state = await find_state(connection, run)
    has_records = await _fetch_records(connection, state.uid, folder)
    part = await connection.link.get_run(state.uid, SUMMARY)
    summary = None if part is None else localized_summary(part.data, folder)
    return Fetched(state, summary, has_records=has_records)


async def _fetch_published(connection: Connection, run: str, folder: Path) -> Fetched:
    """Fetch the published results of a run, and compare their digest with the run's status.

    Other users may exec into the Pod that answers, but they cannot write the status.
    """
    state = await find_state(connection, run)
    found = await connection.cluster.get(ObjectKind.BENCHMARK_RUN, state.name)
    if not await _fetch_records(connection, state.uid, folder):
        raise InvalidInputError(
            f"run {run} has no published results: they appear when a run has ended, except for"
            " audits; the role 'tester', which your account lacks, can fetch unpublished ones"
        )
    expected = published_sha256(found or {})
    if expected:
        _require_genuine(folder / CANDIDATES, expected)
    return Fetched(state, _counted(run, folder))


def _require_genuine(candidates: Path, expected: str) -> None:
    with candidates.open("rb") as records:
        found = hashlib.file_digest(records, "sha256").hexdigest()
    if found != expected:
        candidates.unlink()
    require_digest(CANDIDATES, expected=expected, found=found)


def _counted(run: str, folder: Path) -> dict[str, object]:
    """Compute a summary from the records fetched so far."""
    records = list(read_records(folder / CANDIDATES))
    run_id = str(records[0].get("run_id", run)) if records else run
    summary = run_summary(run_id, map(record_facts, records))
    return summary.to_json(shown_path(folder), shown_path(folder / CANDIDATES))


class Fetched(NamedTuple):
    """What was fetched beside the records.

    Attributes:
        summary: None until the run has ended.
        has_records: Whether the run has any: the folder may still hold those of an earlier one.
    """

    state: RunState
    summary: dict[str, object] | None
    has_records: bool = True


def print_reasons(candidates: Path) -> None:
    """Print on stderr how many attempts did not pass, by reason."""
    total, counts = 0, Counter[str]()
    for record in read_records(candidates):
        total += 1
        counts += reason_counts([record])
    if counts:
        print_note(counts_line(total, counts))


def print_figures(summary: TesterRunSummary) -> None:
    """Print on stderr score, pass@k, tokens and cost."""
    for line in summary.figures():
        print_note(line)


def print_result(summary: TesterRunSummary) -> int:
    """Print the result line and return the exit code: 0 if there is a result."""
    code = told_missing(summary)
    print_line(summary.line().removeprefix("securebench: "))
    return code


def told_missing(summary: TesterRunSummary) -> int:
    """Print why there is no result and return 1, or return 0 if there is one."""
    missing = summary.missing_result()
    if missing:
        print_error(missing)
    return 1 if missing else 0


def _unfinished(fetched: Fetched, run: str, folder: Path) -> int:
    state = fetched.state
    reason = state.reason or "new"
    candidates = folder / CANDIDATES
    records = sum(1 for _ in read_records(candidates)) if fetched.has_records else 0
    if records:
        print_line(f"run={run} state={reason} records={records} output={shown_path(candidates)}")
        return 0
    detail = f": {state.message}" if state.message else ""
    print_error(f"run {run} has no record; it is {reason}{detail}")
    return 1


async def _fetch_records(connection: Connection, uid: str, folder: Path) -> bool:
    """Replace the records in a folder, without the summary of those; return if there are any."""
    make_output_folder(folder)
    mirror = RecordMirror(connection.link, uid, folder / CANDIDATES)
    return await mirror.fetch(outdated=folder / SUMMARY)
