"""The tests' side: runs the test source against the candidate behind the socket.

The exit code of ``test`` is the verdict: 0 only when the whole test source has finished, nothing
was refused on the way, the candidate is still there, and calls that are made again agree.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from . import judging
from .fences import FENCED
from .frames import BrokenError, Channel
from .handles import in_place
from .judging import FAILED, PASSED, say
from .own_process import IN_PLACE, for_effect, uses_of_own_process
from .plain import MODULE
from .samples import Call, NotPlainError, Sample, outcome_of
from .session import SHARED, Session

DEPTH = 4000
"""Recursion limit of the tests: handles add frames to the authors' own."""


def proven(arguments: Sequence[str]) -> int:
    """Run the tests, give supervise its secret back with what they rested on, return the verdict.

    Args:
        arguments: See ``test``.
    """
    secret = judging.taken_secret()
    code, basis = _test(arguments)
    judging.give_back(secret + basis.encode())
    return code


def test(arguments: Sequence[str]) -> int:
    """Run the tests, say on stderr what they rested on, and return the verdict.

    Args:
        arguments: Path of the socket, of the candidate's text and of the tests as JSON; names of
            builtins and standard modules that the task asks the candidate to define, with commas;
            how many calls are made again, nothing for none.
    """
    code, basis = _test(arguments)
    sys.stderr.write(f"securebench: the verdict rests on {basis}\n")
    return code


def _test(arguments: Sequence[str]) -> tuple[int, str]:
    path, candidate, tests, declared, *repeat = arguments
    text = judging.text_of(candidate)
    sys.setrecursionlimit(max(DEPTH, sys.getrecursionlimit()))
    repeats = int(repeat[0]) if repeat else 0
    # Who connects now cannot be led to a worker that the candidate made.
    first, *spare = [_connected(path) for _ in range(1 + repeats)]
    session = Session(Channel(first), Sample(repeats) if repeats else None)
    code = _judged(session, text, tests, declared)
    if code == PASSED and session.sample:
        code = _repeated(session.sample.calls(), spare, session.candidate)
    return code, f"{session.basis}-{FENCED}" if session.is_fenced else session.basis


def _judged(session: Session, text: bytes, tests: str, declared: str) -> int:
    try:
        _run(session, text, tests, declared)
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is no pass
        _report(session, error, tests)
        return FAILED
    if session.violation is None:
        return PASSED
    _tell_notes(session, tests)
    return say(session.violation)


def _connected(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    return connection


class RemoteModule(ModuleType):
    """The candidate's module in the tests; the candidate would not see a change of its names."""

    def __init__(self, session: Session, names: dict[str, Any]) -> None:
        super().__init__(MODULE)
        self.__dict__.update(names, _securebench=session)

    def __setattr__(self, name: str, _value: object) -> None:
        """Fail the tests."""
        raise self._securebench.cannot(f"the tests change {name} of the candidate's module")

    def __delattr__(self, name: str) -> None:
        """Fail the tests."""
        setattr(self, name, None)


def _run(session: Session, text: bytes, path: str, declared: str) -> None:
    """Import the candidate and run the whole test source; raises whatever did not succeed."""
    told = session.choose(text)
    if told:
        say(told)
    names = judging.usable(session.import_candidate(session.candidate), declared)
    if session.sample is not None:
        session.sample.know(names)
    sys.modules[MODULE] = RemoteModule(session, names)
    tests = judging.new_module(
        judging.TESTS, {**names, "__file__": judging.TEST_FILE, IN_PLACE: in_place}
    )
    tree = for_effect(judging.source_of(path), judging.TEST_FILE)
    code = compile(tree, judging.TEST_FILE, "exec")
    exec(code, vars(tests))  # noqa: S102  # the pack's, trusted
    # Whoever is gone by now, or has more to say, did not let the tests complete.
    session.request("hello")


def _report(session: Session, error: BaseException, tests: str) -> None:
    """Say on stderr why the tests did not succeed."""
    is_exit = isinstance(error, SystemExit) or type(error).__name__ == SystemExit.__name__
    if is_exit and MODULE not in sys.modules:
        say(judging.EXIT_AT_IMPORT)
        return
    if not isinstance(error, BrokenError):
        judging.show(error)
    if (is_exit or isinstance(error, BrokenError)) and session.violation != judging.INCOMPLETE:
        say(judging.INCOMPLETE)
    _tell_notes(session, tests)
    if session.violation is not None:
        say(session.violation)


def _tell_notes(session: Session, tests: str) -> None:
    for text in session.notes():
        say(text + SHARED)
    for line, name, what in uses_of_own_process(judging.source_of(tests)):
        say(f"line {line} of the tests: {name} does not reach the candidate, {what}{SHARED}")


def _repeated(calls: Sequence[Call], connections: Sequence[socket.socket], source: bytes) -> int:
    """Make calls again, each in a worker of its own, and return the verdict."""
    if not calls:
        return say("no call could be made again: tests.repeat needs functions with plain data")
    for call in calls:
        if call.outcome is None:
            return say(f"a repeated call cannot be compared: {call.told()}")
    for call, connection in zip(calls, connections):  # noqa: B905  # Python 3.8
        told = call.told()
        if not _agrees(call, Session(Channel(connection)), source):
            return say(f"a repeated call disagrees: {told}")
    sys.stderr.write(f"securebench: {len(calls)} repeated calls agree\n")
    return PASSED


def _agrees(call: Call, session: Session, source: bytes) -> bool:
    result, error = None, None
    with contextlib.ExitStack() as silent:
        nowhere = silent.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123
        silent.enter_context(contextlib.redirect_stdout(nowhere))
        silent.enter_context(contextlib.redirect_stderr(nowhere))
        try:
            function = dict(session.import_candidate(source))[call.name]
            result = session.request(
                "call", function, call.arguments, call.names, in_place=call.in_place
            )
        except BaseException as raised:  # noqa: BLE001  # it is compared
            error = raised
    try:
        outcome = outcome_of(result, error, (call.arguments, call.names))
    except NotPlainError:
        return False
    return session.violation is None and outcome == call.outcome
