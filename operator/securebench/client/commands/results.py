"""``securebench results`` and ``securebench logs``: fetch files from the results volume."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections import Counter
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from securebench.benchmark.files.bundle import folder_files, require_digest
from securebench.client.commands.output import print_error, print_line, print_note
from securebench.client.session.run_summary import (
    TesterRunSummary,
    localized_summary,
    parse_summary,
    write_summary,
)
from securebench.client.terminal_text import printable_lines, shown_path
from securebench.client.volume.connection import (
    ClusterTarget,
    Connection,
    open_connection,
    open_published,
)
from securebench.client.volume.output_folder import make_output_folder
from securebench.client.volume.record_mirror import RecordMirror, read_records
from securebench.client.watch.failures import counts_line, reason_counts
from securebench.client.watch.follow import RunState, published_sha256, run_state
from securebench.cluster.port import ObjectKind
from securebench.core.errors import InvalidInputError, PermanentClusterError
from securebench.protocol.volume import CANDIDATES, SUMMARY
from securebench.run.records.summary import record_facts, run_summary


def results(run: str, output_dir: Path | None, target: ClusterTarget) -> int:
    """Fetch the records and, once it has ended, the summary of a run.

    Args:
        run: Name of a BenchmarkRun, even a deleted one, or a run id.
        output_dir: Output folder; by default a folder with the run's name.
        target: Namespace of the run.
    """
    return asyncio.run(_results(run, output_dir or Path(run), target))


def logs(run: str, task_id: str, target: ClusterTarget) -> int:
    """Print the captured output of a task's last launches."""
    return asyncio.run(_logs(run, task_id, target))


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


async def _results(run: str, folder: Path, target: ClusterTarget) -> int:
    fetched = await fetch_results(run, folder, target)
    if fetched.summary is None:
        return _unfinished(fetched.state, run, folder)
    write_summary(fetched.summary, folder)
    print_reasons(folder / CANDIDATES)
    return print_result(parse_summary(fetched.summary))


async def _fetch(connection: Connection, run: str, folder: Path) -> Fetched:
    state = await find_state(connection, run)
    await _mirror(connection, state.uid, folder).fetch()
    part = await connection.link.get_run(state.uid, SUMMARY)
    return Fetched(state, None if part is None else localized_summary(part.data, folder))


async def _fetch_published(connection: Connection, run: str, folder: Path) -> Fetched:
    """Fetch the published results of a run, and compare their digest with the run's status.

    Other users may exec into the Pod that answers, but they cannot write the status.
    """
    found = await connection.cluster.get(ObjectKind.BENCHMARK_RUN, run)
    state = await find_state(connection, run)
    if not await _mirror(connection, state.uid, folder).fetch():
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
    """What was fetched beside the records; ``summary`` is None until the run has ended."""

    state: RunState
    summary: dict[str, object] | None


def print_reasons(candidates: Path) -> None:
    """Print on stderr how many attempts did not pass, by reason."""
    total, counts = 0, Counter[str]()
    for record in read_records(candidates):
        total += 1
        counts += reason_counts([record])
    if counts:
        print_note(counts_line(total, counts))


def print_result(summary: TesterRunSummary) -> int:
    """Print the result line and return the exit code: 0 if there is a result."""
    missing = summary.missing_result()
    if missing:
        print_error(missing)
    print_line(summary.line().removeprefix("securebench: "))
    return 1 if missing else 0


def _unfinished(state: RunState, run: str, folder: Path) -> int:
    reason = state.reason or "new"
    candidates = folder / CANDIDATES
    records = sum(1 for _ in read_records(candidates)) if candidates.exists() else 0
    if records:
        print_line(f"run={run} state={reason} records={records} output={shown_path(candidates)}")
        return 0
    detail = f": {state.message}" if state.message else ""
    print_error(f"run {run} has no record; it is {reason}{detail}")
    return 1


def _mirror(connection: Connection, uid: str, folder: Path) -> RecordMirror:
    make_output_folder(folder)
    return RecordMirror(connection.link, uid, folder / CANDIDATES)


async def _logs(run: str, task_id: str, target: ClusterTarget) -> int:
    with TemporaryDirectory() as scratch:
        folder = Path(scratch, "log")
        async with open_connection(target) as connection:
            state = await find_state(connection, run)
            await connection.link.get_log(state.uid, task_id, folder)
        for name, path in sorted(folder_files(folder).items()):
            _print_file(name, path)
    return 0


def _print_file(name: str, path: Path) -> None:
    sys.stdout.write(f"==> {name} <==\n")
    text = path.read_text(encoding="utf-8", errors="replace")
    if sys.stdout.isatty():
        text = printable_lines(text)
    sys.stdout.write(text if text.endswith("\n") or not text else f"{text}\n")


async def find_state(connection: Connection, run: str) -> RunState:
    """Find a run by its BenchmarkRun or, on the volume, by its former name or its run id."""
    found = await connection.cluster.get(ObjectKind.BENCHMARK_RUN, run)
    if found is not None:
        return run_state(found)
    entries = await connection.link.find_named(run)
    if not entries:
        raise InvalidInputError(
            f"there is no BenchmarkRun {run!r} in this namespace, and the results volume has no"
            " run with this name or run id"
        )
    last = entries[-1]
    if last.removed_at:
        raise InvalidInputError(
            f"the results of run {last.run!r} were removed from the volume at {last.removed_at}"
        )
    return RunState(last.run, last.uid, "", last.outcome, "", total=0, done=0)
