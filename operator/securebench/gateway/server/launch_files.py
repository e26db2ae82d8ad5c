"""Read and write the reports and logs of launches on the volume."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from securebench.errors import StorageError
from securebench.files.durable import FILE_MODE, replace_file, write_all
from securebench.protocol.gateway import LaunchReport, decode, encode

REPORT = ".json"
LOG = ".jsonl"


class StoredLaunch(NamedTuple):
    """A launch as it is on disk.

    Attributes:
        report: Its last report.
        log_lines: Number of complete lines in its log.
    """

    report: LaunchReport
    log_lines: int


def read_launches(folder: Path) -> list[StoredLaunch]:
    """Read all launches of a folder, ordered by name; truncated log lines are removed.

    Raises:
        StorageError: A report is damaged.
        OSError: The volume failed.
    """
    return [_read_launch(path) for path in sorted(folder.glob(f"*{REPORT}"))]


class ReportNotWrittenError(OSError):
    """A launch's log has its lines, and its report could not be replaced."""


def write_launch(folder: Path, report: LaunchReport, lines: bytes) -> None:
    """Append to a launch's log, then replace its report; both are synced on return.

    Raises:
        ReportNotWrittenError: Only the report is missing: the lines must not be written again.
        OSError: Nothing was written.
    """
    if lines:
        _append(folder / (report.pod + LOG), lines)
    try:
        replace_file(folder / (report.pod + REPORT), encode(report))
    except OSError as error:
        raise ReportNotWrittenError(*error.args) from error


def _append(path: Path, lines: bytes) -> None:
    """Append all or nothing; without a buffer, which would still be written when it is closed."""
    with path.open("ab", buffering=0) as file:
        before = file.seek(0, os.SEEK_END)
        try:
            os.fchmod(file.fileno(), FILE_MODE)
            write_all(file, lines)
            os.fsync(file.fileno())
        except OSError:
            file.truncate(before)
            raise


def _read_launch(path: Path) -> StoredLaunch:
    try:
        report = decode(LaunchReport, path.read_bytes())
    except ValueError as error:
        raise StorageError(
            f"the launch report {path.name} is damaged: {error}; delete the run's gateway Pod and"
            " this file to restart the launch's counters"
        ) from None
    if report.pod + REPORT != path.name:
        raise StorageError(f"the launch report {path.name} belongs to Pod {report.pod}")
    return StoredLaunch(report, _whole_lines(path.with_suffix(LOG)))


def _whole_lines(path: Path) -> int:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return 0
    end = content.rfind(b"\n") + 1
    if end != len(content):
        os.truncate(path, end)
    return content.count(b"\n")
