"""``securebench verify``: check a run's results against the statement on them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from securebench.attestation.envelope import Key, pem_key
from securebench.attestation.findings import CheckedRun
from securebench.attestation.verification import Trust, verify_run
from securebench.client.handed_files import handed_content, handed_lines, means_folder
from securebench.client.inspection.find import find_state
from securebench.client.output import print_error, print_json, print_line, print_note
from securebench.client.terminal_text import shown_path
from securebench.client.volume.connection import ClusterTarget, open_connection
from securebench.client.volume.output_folder import make_output_folder
from securebench.client.volume.record_mirror import RecordMirror
from securebench.errors import ConfigError
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
        target: Namespace of the run.

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
