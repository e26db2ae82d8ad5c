"""Output and exit codes of commands: 0, 1 and 130; code 2 comes from the argument parser."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
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
