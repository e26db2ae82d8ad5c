"""Candidate and tests in one interpreter: for tests that need live objects of the candidate.

Both run as a user that can neither end nor write what supervise keeps. The exit code is the verdict
and counts only together with the secret that supervise gave: who ends this process early does not
give it back. Code in this interpreter can look for the secret, and for the tests; records
say so (``grading`` is ``in-process``).
"""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Sequence
from typing import Any

from . import judging
from .fences import FENCED, candidate_in
from .judging import FAILED, INCOMPLETE, PASSED, TEST_FILE

MUST_HOLD = compile("assert [1] == [1]", TEST_FILE, "exec")
MUST_FAIL = compile("assert [1] == [2]", TEST_FILE, "exec")

_run = exec
_own = (sys.settrace, sys.setprofile, threading.settrace, threading.setprofile)
"""As they are before the candidate's module can replace them."""


class TamperedError(Exception):
    """Assertions mean something else since the candidate was imported."""


def shared(arguments: Sequence[str]) -> int:
    """Run the tests and return the verdict.

    Args:
        arguments: Folder for the candidate's file, path of its text and of the tests as JSON;
            names that the task asks the candidate to define, with commas.
    """
    secret = judging.taken_secret()
    folder, candidate, tests, declared = arguments
    chosen = candidate_in(judging.text_of(candidate))
    if chosen.told:
        judging.say(chosen.told)
    code = _judged(folder, chosen.source, tests, declared)
    judging.give_back(secret + (FENCED.encode() if chosen.is_fenced else b""))
    return code


def _judged(folder: str, candidate: bytes, tests: str, declared: str) -> int:
    own = dict(vars(builtins))
    code = judging.code_of(tests)
    exited = judging.EXIT_AT_IMPORT
    try:
        module = judging.load(candidate, folder)
        exited = INCOMPLETE
        names = [(name, value) for name, value in vars(module).items() if name[:2] != "__"]
        space = {**judging.usable(names, declared), "__builtins__": own, "__file__": TEST_FILE}
        tested = judging.new_module(judging.TESTS, space)
        _check_assertions(own)
        _run(code, vars(tested))
        _check_assertions(own)
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is no pass
        judging.show(error)
        return judging.say(exited) if isinstance(error, SystemExit) else FAILED
    return PASSED


def _check_assertions(own: dict[str, Any]) -> None:
    """Raise TamperedError unless assertions still fail when they must, and only then."""
    for restore in _own:
        restore(None)
    try:
        _run(MUST_HOLD, {"__builtins__": own})
    except AssertionError:
        raise TamperedError("an assertion that holds fails") from None
    try:
        _run(MUST_FAIL, {"__builtins__": own})
    except AssertionError:
        return
    raise TamperedError("an assertion that must fail does not")
