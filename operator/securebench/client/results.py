"""The commands ``securebench results`` and ``securebench verify``.

``results`` fetches records and summary from the results volume. ``verify`` checks them against the
signed statement on them. ``--fail-below`` gives a score that a pipeline does not accept an exit
code of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from securebench.attestation.envelope import Key, pem_key
from securebench.attestation.verification import CheckedRun, Trust, verify_run
from securebench.benchmark.files.bundle import require_digest
from securebench.client.follow import RunState, published_sha256
from securebench.client.output import (
    OutputForm,
    print_error,
    print_json,
    print_line,
    print_note,
    print_objects,
    print_table,
    shown_path,
)
from securebench.client.result_folder import (
    RecordMirror,
    handed_content,
    handed_lines,
    make_output_folder,
    means_folder,
    read_records,
)
from securebench.client.run_summary import (
    TesterRunSummary,
    cost_fields,
    localized_summary,
    parse_summary,
    write_summary,
)
from securebench.client.runs import find_state
from securebench.client.tester_config import load_prices
from securebench.client.volume import ClusterTarget, Connection, open_connection, open_published
from securebench.cluster.port import ObjectKind
from securebench.errors import ConfigError, InvalidInputError, PermanentClusterError
from securebench.json_values import as_number, object_at, text_at
from securebench.protocol.volume import (
    ATTEMPT_LIST,
    CANDIDATES,
    JOURNAL,
    RUN,
    STARTS,
    STATEMENT,
    SUMMARY,
)
from securebench.run.records.reading import Record, counts_line, failure, reason_counts
from securebench.run.records.summary import record_facts, run_summary

BELOW = 3
"""Exit code for a result whose score is below the limit."""


def score_code(passed: int, verified: int, limit: float | None) -> int:
    """Return 0 for a score that is accepted; otherwise print an error and return ``BELOW``.

    Args:
        passed: Attempts that passed.
        verified: Attempts with a verdict.
        limit: Smallest share of passes that is accepted, from 0 to 1; None accepts every score.
    """
    if limit is None or (verified and passed / verified >= limit):
        return 0
    if not verified:
        print_error(f"there is no score, so it is below --fail-below {limit:g}")
    else:
        share = passed / verified
        print_error(
            f"the score {share:.4g} ({passed} of {verified} passed) is below --fail-below {limit:g}"
        )
    return BELOW


_ATTEMPT_HEADER = ("TASK", "ATTEMPT", "STATUS", "SCORE", "OUTCOME", "REASON")


def results(
    run: str,
    output_dir: Path | None,
    form: OutputForm,
    target: ClusterTarget,
    fail_below: float | None = None,
    prices: Path | None = None,
) -> int:
    """Fetch the records and, once it has ended, the summary of a run.

    Args:
        run: Name of a BenchmarkRun, even a deleted one, or a run id.
        output_dir: Output folder; by default a folder with the run's name.
        form: The result line, a table of attempts with it, or the summary as data.
        fail_below: Smallest score that is accepted; None accepts every score.
        prices: File with a price table, for the cost.
    """
    folder, table = output_dir or Path(run), {} if prices is None else load_prices(prices)
    fetched = asyncio.run(fetch_results(run, folder, target))
    if fetched.summary is None:
        return _unfinished(fetched, run, folder)
    raw = fetched.summary | cost_fields(folder / CANDIDATES, table)
    write_summary(raw, folder)
    summary = parse_summary(raw)
    if form is OutputForm.WIDE:
        print_table(_ATTEMPT_HEADER, map(_attempt_row, read_records(folder / CANDIDATES)))
    print_reasons(folder / CANDIDATES)
    print_figures(summary)
    code = score_code(summary.passed, summary.verified, fail_below)
    if not form.is_data:
        return print_result(summary) or code
    print_objects([raw], form)
    return told_missing(summary) or code


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


HANDED_ON = (STATEMENT, CANDIDATES, SUMMARY, RUN, ATTEMPT_LIST, STARTS)
"""Files that may be handed on; the journal may quote hidden values."""

_BY_LINE = frozenset({CANDIDATES, ATTEMPT_LIST, JOURNAL})
"""Files of any length, which are never in memory as a whole."""

_PLAIN_NAME = re.compile(r"[-.0-9A-Za-z]{1,253}")


class VerifyOptions(NamedTuple):
    """How a run is checked.

    Args:
        keys: Files with public keys of operators that are trusted.
        is_unsigned: Whether files are only checked against each other.
        output_dir: Where fetched files are left; None leaves none.
        with_journal: Whether the journal is left there too.
        is_json: Whether the result is printed as JSON.
    """

    keys: tuple[Path, ...] = ()
    is_unsigned: bool = False
    output_dir: Path | None = None
    with_journal: bool = False
    is_json: bool = False


class FolderFiles:
    """The files of a run in a folder.

    Args:
        folder: As ``--output-dir`` leaves it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def lines(self, name: str) -> Iterator[bytes] | None:
        """Return the lines of a file with their newlines, or None where there is no such file."""
        path = self._folder / name
        if not path.is_symlink() and not path.exists():
            return None
        return handed_lines(path) if name in _BY_LINE else iter([handed_content(path)])


def verify(subject: str, options: VerifyOptions, target: ClusterTarget) -> int:
    """Check a run.

    Args:
        subject: A folder, or a run as of ``results``.
        options: What is trusted, and how the result is printed.

    Raises:
        ConfigError: No key is given, or one is none.
    """
    if not options.keys and not options.is_unsigned:
        raise ConfigError(
            "a signature proves something only against a key that you know: give the operator's"
            " public key with --key, or --unsigned to check the files against each other only"
        )
    trust = Trust(tuple(map(_key, options.keys)), is_signature_needed=not options.is_unsigned)
    if means_folder(subject):
        return _tell(Path(subject), trust, options)
    with TemporaryDirectory(prefix="securebench-") as folder:
        return asyncio.run(_verify_run(subject, Path(folder), trust, (options, target)))


async def _verify_run(
    run: str, folder: Path, trust: Trust, how: tuple[VerifyOptions, ClusterTarget]
) -> int:
    options, target = how
    async with open_connection(target) as connection:
        uid = (await find_state(connection, run)).uid
        for name in (*HANDED_ON, JOURNAL):
            await RecordMirror(connection.link, uid, folder / name, name).fetch()
    code = _tell(folder, trust._replace(uid=uid), options)
    if options.output_dir is not None:
        _keep(folder, options.output_dir, (*HANDED_ON, *[JOURNAL] * options.with_journal))
    return code


def _keep(source: Path, folder: Path, names: tuple[str, ...]) -> None:
    make_output_folder(folder)
    for name in names:
        if (source / name).exists():
            shutil.copyfile(source / name, folder / name)
    print_note(f"the checked files are in {shown_path(folder)}")


def _tell(folder: Path, trust: Trust, options: VerifyOptions) -> int:
    began = perf_counter()
    report = verify_run(FolderFiles(folder), trust)
    seconds = perf_counter() - began
    if options.is_json:
        print_json(_fields(report, seconds))
        return 1 if report.findings else 0
    for finding in report.findings:
        print_error(str(finding))
    for note in report.notes:
        print_note(note)
    print_line(_line(report, seconds))
    return 1 if report.findings else 0


def _line(report: CheckedRun, seconds: float) -> str:
    run, attempts = object_at(report.predicate, "run"), object_at(report.predicate, "attempts")
    name, holds = _quoted(text_at(run, "name") or "unknown"), "no" if report.findings else "yes"
    finished, launches = (as_number(attempts.get(key)) or 0 for key in ("finished", "launches"))
    return (
        f"run={name} holds={holds}"
        f" signed_by={','.join(each[:12] for each in report.signed_by) or 'nobody'}"
        f" records={finished:.0f} launches={launches:.0f}"
        f" seconds={seconds:.2f}"
    )


def _fields(report: CheckedRun, seconds: float) -> dict[str, object]:
    return {
        "holds": not report.findings,
        "signed_by": list(report.signed_by),
        "findings": [finding._asdict() for finding in report.findings],
        "notes": list(report.notes),
        "predicate": dict(report.predicate),
        "seconds": round(seconds, 3),
    }


def _key(path: Path) -> Key:
    try:
        return pem_key(path.read_bytes())
    except ConfigError as error:
        raise ConfigError(f"{shown_path(path)} {error.reason}") from None


def _quoted(name: str) -> str:
    """Return a name that nobody has vouched for, so that it cannot be read as further fields."""
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)
