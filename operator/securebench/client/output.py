"""Output and exit codes of commands: 0, 1 and 130; code 2 comes from the argument parser.

Commands print lines for people, or objects in the forms that kubectl names (``--output``).
"""

from __future__ import annotations

import json
import os
import os.path
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn

import typer

from securebench.errors import ConfigErrors, PermanentClusterError, SecureBenchError
from securebench.text import printable

INTERRUPTED = 130


def end_with(command: Callable[[], int]) -> NoReturn:
    """Run a command and exit with the code that it returns."""
    try:
        with errors_as_lines():
            code = command()
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise typer.Exit(code)


@contextmanager
def errors_as_lines() -> Iterator[None]:
    """Turn exceptions into error lines and exit code 1 (contract 2.1)."""
    try:
        yield
    except (SecureBenchError, OSError, ValueError, ImportError) as error:
        print_errors(error)
        raise SystemExit(1) from None


def error_lines(error: Exception) -> tuple[str, ...]:
    """Return one line per error."""
    if isinstance(error, ConfigErrors):
        return tuple(line for part in error.errors for line in _lines(str(part)))
    if isinstance(error, PermanentClusterError) and error.status == HTTPStatus.FORBIDDEN:
        hint = "your account lacks a permission; ask for the chart's role 'tester'"
        return (f"{hint} ({_one_line(str(error))})",)
    if isinstance(error, PermanentClusterError) and error.status == HTTPStatus.NOT_FOUND:
        hint = "the cluster has no resource BenchmarkRun; install the chart with its CRDs"
        return (f"{hint} ({_one_line(str(error))})",)
    if isinstance(error, OSError) and error.filename is not None:
        return (f"{error.filename}: {error.strerror}",)
    return _lines(str(error)) or (type(error).__name__,)


def print_errors(error: Exception) -> None:
    """Print the lines of an exception."""
    for line in error_lines(error):
        print_error(line)


def print_error(message: str) -> None:
    """Print an error line on stdout, and on stderr if that goes elsewhere (decision 0037)."""
    print_line(f"error: {message}")
    if not _share_one_stream():
        sys.stderr.write(f"securebench: error: {printable(message)}\n")
        sys.stderr.flush()


def print_line(message: str) -> None:
    """Print a line with the program's prefix on stdout."""
    sys.stdout.write(f"securebench: {printable(message)}\n")
    sys.stdout.flush()


def print_json(value: object) -> None:
    """Print a value as one line of JSON on stdout, without any prefix."""
    sys.stdout.write(f"{json.dumps(value)}\n")
    sys.stdout.flush()


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print aligned columns on stdout."""
    lines = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
    sys.stdout.flush()


def print_notices(messages: Iterable[object]) -> None:
    """Print warnings on stderr."""
    for message in messages:
        sys.stderr.write(f"securebench: warning: {printable(str(message))}\n")
    sys.stderr.flush()


def print_note(message: str) -> None:
    """Print an informational line on stderr."""
    sys.stderr.write(f"securebench: {printable(message)}\n")
    sys.stderr.flush()


def _share_one_stream() -> bool:
    """Whether stdout and stderr are the same terminal, file or pipe."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):
        return False


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines() if line.strip())


def _one_line(text: str) -> str:
    return " ".join(text.split())


class OutputForm(StrEnum):
    """Value of ``--output``."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_data(self) -> bool:
        """Whether programs read it."""
        return self in {OutputForm.JSON, OutputForm.YAML}


def print_objects(objects: Iterable[Mapping[str, object]], form: OutputForm) -> None:
    """Print objects on stdout: JSON has one a line, YAML one document each.

    Both are ASCII, with escapes for everything else, so that no text moves the cursor.
    """
    for item in objects:
        sys.stdout.write(_yaml(item) if form is OutputForm.YAML else json_line(item))
    sys.stdout.flush()


def json_line(item: Mapping[str, object]) -> str:
    """Return an object as one line of printable ASCII."""
    return json.dumps(item, sort_keys=True).replace("\x7f", "\\u007f") + "\n"


def _yaml(item: Mapping[str, object]) -> str:
    import yaml  # noqa: PLC0415 - programs that never print YAML start without it

    plain = json.loads(json.dumps(item))
    return yaml.safe_dump(plain, explicit_start=True, sort_keys=True)


_NUMBERS = re.compile(r"\d+")


def without_numbers(text: str) -> str:
    """Mask numbers, so that messages that differ only in seconds or counts compare equal."""
    return _NUMBERS.sub("", text)


def shown_path(path: Path) -> str:
    """Return the absolute path without ``..`` and without resolving links.

    A ``..`` after a symlink is kept, because removing it would name another folder.
    """
    normal = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
    return str(normal if normal.resolve() == path.resolve() else path.absolute())
