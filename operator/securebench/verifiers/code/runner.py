"""The tests' side: runs the test source against the candidate behind the socket.

``runner.wait([SOCKET, SECONDS])`` returns when a worker answers. ``runner.main([SOCKET, CANDIDATE,
TESTS, NAMES])`` imports the candidate's file over there and runs the tests here. Its exit code is
the verdict: 0 only when the whole test source has finished, nothing was refused on the way and the
candidate is still there.
"""

from __future__ import annotations

import builtins
import json
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from .faults import TRACEBACK
from .frames import Channel, EndOfStreamError
from .plain import safe_module
from .session import INCOMPLETE, BrokenError, Session

TESTS = "__securebench_tests__"
TEST_FILE = "solution_test.py"
CANDIDATE = "securebench_candidate"
EXIT_AT_IMPORT = "candidate attempted to exit during import"
PASSED, FAILED, NO_WORKER = 0, 1, 3
POLL_SECONDS = 0.02
DEPTH = 4000
"""Recursion limit of the tests: proxies add frames to the authors' own."""

TRACE_LINES = 60


def main(arguments: Sequence[str]) -> int:
    """Run the tests and return the verdict.

    Args:
        arguments: Path of the socket, of the candidate's text and of the tests as JSON; names of
            builtins and standard modules that the task asks the candidate to define, with commas.
    """
    path, candidate, tests, declared = arguments
    with open(candidate, "rb") as file:  # noqa: PTH123  # pathlib costs 5 ms of start
        source = file.read().rstrip(b"\r\n") + b"\n"
    with open(tests, encoding="utf-8") as file:  # noqa: PTH123
        code = json.load(file)["code"]
    sys.setrecursionlimit(max(DEPTH, sys.getrecursionlimit()))
    session = Session(Channel(connected(path)))
    try:
        run(session, source, code, frozenset(declared.split(",")))
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is no pass
        _report(session, error)
        return FAILED
    if session.violation is not None:
        return _say(session.violation)
    return PASSED


def wait(arguments: Sequence[str]) -> int:
    """Wait until a worker answers and return the exit code.

    Args:
        arguments: Path of the socket, seconds.
    """
    path, seconds = arguments
    deadline = time.monotonic() + float(seconds)
    while True:
        try:
            channel = Channel(connected(path))
            channel.send(["", "hello", []])
            channel.receive()
            channel.close()
        except (OSError, EndOfStreamError) as error:
            if time.monotonic() > deadline:
                _say(f"the candidate's container does not answer: {error}")
                return NO_WORKER
            time.sleep(POLL_SECONDS)
        else:
            return PASSED


def connected(path: str) -> socket.socket:
    """Return a connection to the worker."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    return connection


def run(session: Session, source: bytes, code: str, declared: frozenset[str]) -> None:
    """Import the candidate and run the whole test source.

    Raises:
        BaseException: The tests or the import did not succeed.
    """
    names = usable(session.import_candidate(source), declared)
    _module(CANDIDATE, names)
    space = _module(TESTS, {**names, "__file__": TEST_FILE}).__dict__
    exec(compile(code, TEST_FILE, "exec"), space)  # noqa: S102  # the pack's tests, trusted
    # Whoever is gone by now, or has more to say, did not let the tests complete.
    session.request("hash", None)


def usable(names: Sequence[tuple[str, Any]], declared: frozenset[str]) -> dict[str, Any]:
    """Return the candidate's names that the tests get.

    A candidate does not replace builtins or standard modules for the tests, unless the task asks
    for a definition of that name.

    Args:
        names: Top-level names with their values.
        declared: Names that the task asks for.
    """
    result: dict[str, Any] = {}
    for name, value in names:
        module = safe_module(name)
        if name in declared or (module is None and not hasattr(builtins, name)):
            result[name] = value
        elif module is not None and value is module:
            result[name] = module
        else:
            sys.stderr.write(f"securebench: the candidate's {name} does not replace Python's own\n")
    return result


def _module(name: str, content: dict[str, Any]) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(content)
    sys.modules[name] = module
    return module


def _report(session: Session, error: BaseException) -> None:
    """Say on stderr why the tests did not succeed."""
    if isinstance(error, SystemExit) and CANDIDATE not in sys.modules:
        _say(EXIT_AT_IMPORT)
        return
    if not isinstance(error, BrokenError):
        _trace(error)
    if isinstance(error, (SystemExit, BrokenError)) and session.violation != INCOMPLETE:
        _say(INCOMPLETE)
    if session.violation is not None:
        _say(session.violation)


def _trace(error: BaseException) -> None:
    told = getattr(error, "__dict__", {}).get(TRACEBACK)
    if CANDIDATE in sys.modules:
        lines: list[str] = traceback.format_exception(type(error), error, error.__traceback__)
        sys.stderr.write("".join(lines[-TRACE_LINES:]))
    if isinstance(told, str):
        sys.stderr.write(f"in the candidate:\n{told}")


def _say(text: str) -> int:
    sys.stderr.write(f"securebench: {text}\n")
    return FAILED


def leave(code: int) -> NoReturn:
    """End at once: threads and exit functions that the tests left have no say."""
    import os  # noqa: PLC0415  # for this alone

    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    os._exit(code)
