"""Reports and logs of launches on the volume."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from securebench.core.errors import StorageError
from securebench.files.durable import FILE_MODE, replace_file
from securebench.protocol.gateway import LaunchReport, decode, encode

REPORT = ".json"
LOG = ".jsonl"


class KeptLaunch(NamedTuple):
    """What the disk has of a launch.

    Attributes:
        report: As it was written last.
        log_lines: Whole lines in its log.
    """

    report: LaunchReport
    log_lines: int


def read_launches(folder: Path) -> list[KeptLaunch]:
    """Return all launches of the folder in the order of their names; cut log lines are removed.

    Raises:
        StorageError: A report is damaged.
        OSError: The volume did not do what was asked.
    """
    return [_kept(path) for path in sorted(folder.glob(f"*{REPORT}"))]


def write_launch(folder: Path, report: LaunchReport, lines: bytes) -> None:
    """Append to a launch's log, then replace its report; both are on the disk on return.

    Raises:
        OSError: The volume did not take it.
    """
    if lines:
        _append(folder / (report.pod + LOG), lines)
    replace_file(folder / (report.pod + REPORT), encode(report))


def _append(path: Path, lines: bytes) -> None:
    """Append all or nothing, so that lines that are put back stand there once."""
    with path.open("ab") as file:
        before = file.tell()
        try:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), before)
            raise


def _kept(path: Path) -> KeptLaunch:
    try:
        report = decode(LaunchReport, path.read_bytes())
    except ValueError as error:
        raise StorageError(
            f"the launch report {path.name} is damaged: {error}; remove the run's gateway Pod and"
            " this file to begin the launch's numbers anew"
        ) from None
    if report.pod + REPORT != path.name:
        raise StorageError(f"the launch report {path.name} is of Pod {report.pod}")
    return KeptLaunch(report, _whole_lines(path.with_suffix(LOG)))


def _whole_lines(path: Path) -> int:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return 0
    end = content.rfind(b"\n") + 1
    if end != len(content):
        os.truncate(path, end)
    return content.count(b"\n")
