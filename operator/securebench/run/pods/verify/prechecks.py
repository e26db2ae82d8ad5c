"""Prechecks before the candidate is staged: a failure here is the pack's fault.

Source: contract 21.15, docs/reference/checks.md.
"""

from __future__ import annotations

import re
import shlex
from importlib.resources import files
from typing import TYPE_CHECKING

from securebench.benchmark.families.counted_commands import PYTHON_NAME, SHELL
from securebench.benchmark.pack.paths import EVALUATION_ROOT
from securebench.protocol.supervise import Phase
from securebench.run import layout
from securebench.run.pods.containers import PYTHON

if TYPE_CHECKING:
    from securebench.run.plan.model import CheckPlan

PRECHECK_SECONDS = 60.0
"""A precheck that takes longer has found nothing; most need less than a second."""

PROGRAM = "program of the check"
FILE = "file of the check"
COMPILED = "Python sources of the tests"

PROGRAMS = files("securebench.grading") / "checks"
"""Programs of task images: text here, which nothing of the operator imports."""

SOURCES = (PROGRAMS / "source_compiler.py").read_text("utf-8")
"""Compiles files, in the interpreter that would run them."""

COMPILE = ("-I", "-S", "-B", "-c", SOURCES)
THERE = 'test -e "$0" || { echo "$0 is not there" >&2; exit 1; }'
FOUND = 'command -v "$0" >/dev/null || { echo "$0: no such program in the image" >&2; exit 1; }'
SAME_SHELL = 'exec "$0" "$@"'
"""A login shell may look in other folders than the image's PATH."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
FILE_NAME = re.compile(r"[A-Za-z0-9_.+/-]+")
INTERPRETER = re.compile(r"(?:.*/)?(python[0-9.]*|sh|bash|dash)")
WITH_VALUE = frozenset({"-W", "-X", "-o"})


def runner_text() -> str:
    """Return the program that runs pytest in a task image, as text for ``python3 -c``."""
    return (PROGRAMS / "pytest_runner.py").read_text("utf-8")


def is_of_candidate(check: CheckPlan, workspace: str) -> bool:
    """Return whether the program that supervise starts may be the candidate's own."""
    program = check.command[0]
    if "/" not in program:
        return False
    place = program if program.startswith("/") else f"{check.workdir}/{program}"
    inputs = f"{workspace}/{EVALUATION_ROOT}/"
    return place.startswith(f"{workspace}/") and not place.startswith(inputs)


def command_prechecks(check: CheckPlan, workspace: str) -> list[Phase]:
    """Return what is certain of a command: its first program, and the pack's file that it runs.

    Args:
        check: A check by a command; a text for the shell or an argv.
        workspace: Where the candidate's workspace is.
    """
    is_shell = check.command[: len(SHELL)] == SHELL
    words = _first_words(check.command[-1]) if is_shell else list(check.command)
    if not words:
        return []
    phases = []
    if is_shell and NAME.fullmatch(words[0]):
        phases.append(_phase(PROGRAM, (*SHELL, FOUND, words[0]), check))
    file = _packs_file(words, check.workdir, workspace)
    if file is None:
        return phases
    phases.append(_phase(FILE, ("sh", "-c", THERE, file), check))
    if PYTHON_NAME.fullmatch(words[0]):
        compiler = (words[0], *COMPILE, file)
        command = (*SHELL, SAME_SHELL, *compiler) if is_shell else compiler
        phases.append(_phase(COMPILED, command, check))
    return phases


def test_compiler(check: CheckPlan) -> Phase | None:
    """Return what compiles the tests that a patch brings, or None where no Python is named.

    Only the interpreter that begins the command is known to be that of the tests; the names of the
    files are added to the command.
    """
    is_shell = check.command[: len(SHELL)] == SHELL
    words = _first_words(check.command[-1]) if is_shell else list(check.command)
    while is_shell and words[:1] == ["cd"] and words[2:3] == ["&&"]:
        words = _without_assignments(words[3:])
    if not words or not PYTHON_NAME.fullmatch(words[0]):
        return None
    compiler = (words[0], *COMPILE)
    return _phase(COMPILED, (*SHELL, SAME_SHELL, *compiler) if is_shell else compiler, check)


def inline_compiler(check_file: str, workdir: str, user: int) -> Phase:
    """Return what compiles the tests of code_completion.

    Args:
        check_file: Where they lie, as JSON.
        workdir: Absolute working folder.
        user: User and group; 0 for those of supervise.
    """
    command = (PYTHON, *COMPILE, check_file)
    return Phase(COMPILED, command, workdir, PRECHECK_SECONDS, user=user, is_ready=True)


def _phase(name: str, command: tuple[str, ...], check: CheckPlan) -> Phase:
    return Phase(name, command, check.workdir, PRECHECK_SECONDS)


def _first_words(text: str) -> list[str]:
    """Return the words of a shell text from its first program on, or nothing."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        return []
    return _without_assignments(words)


def _without_assignments(words: list[str]) -> list[str]:
    while words and ASSIGNMENT.match(words[0]):
        if words[0].startswith("PATH="):
            return []
        words = words[1:]
    return words


def _packs_file(words: list[str], workdir: str, workspace: str) -> str | None:
    """Return the evaluation file that an interpreter is told to run, or None."""
    if not INTERPRETER.fullmatch(words[0]):
        return None
    rest = iter(words[1:])
    for word in rest:
        if word in WITH_VALUE:
            next(rest, None)
        elif not word.startswith("-"):
            place = word if word.startswith("/") else f"{workdir}/{word}"
            is_packs = place.startswith((f"{workspace}/{EVALUATION_ROOT}/", f"{layout.EVALUATOR}/"))
            return place if is_packs and FILE_NAME.fullmatch(word) else None
        elif "c" in word or "m" in word:
            return None
    return None
