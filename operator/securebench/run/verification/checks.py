"""What checks in task images have in common: their plan, prechecks and verdict.

A precheck runs before the candidate is staged: what it finds is the pack's fault.

Source: contract 21.15, docs/reference/checks.md.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files

from securebench.benchmark.families.base import PYTEST, CheckRequest
from securebench.benchmark.families.counted_commands import (
    PYTHON_NAME,
    SHELL,
    argv_of,
    counted_calls,
)
from securebench.benchmark.pack.lane_plan import checker_reference
from securebench.benchmark.pack.paths import EVALUATION_ROOT
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.json_values import first_limit
from securebench.names import logical_name
from securebench.protocol.grading import ROW_VARIABLE
from securebench.protocol.messages import Code
from securebench.protocol.supervise import Phase
from securebench.reasons import VERIFIER_CONFIGURATION, VERIFIER_ERROR, VERIFIER_TIMEOUT
from securebench.run import layout
from securebench.run.observe.stage import container_report
from securebench.run.observe.termination import collected_streams
from securebench.run.plan.kinds import PlanRequest
from securebench.run.plan.model import TaskPlan
from securebench.run.pods.containers import PYTHON
from securebench.run.records.labels import command_fields
from securebench.run.state.attempts import VerifierResult
from securebench.run.verification.base import Left

CHECK_SECONDS = 300.0
"""Default time limit of a check (contract 15.8)."""

IN_PROCESS = {"containment_profile": "shared_runtime", "hidden_test_runtime_secrecy": False}
"""Metadata of a record whose candidate code ran in the interpreter of the tests."""

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


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """A check that runs a file of the pack (contract 14.6, source form).

    Attributes:
        kind: ``pytest`` or ``script``.
        path: Normalised path, relative to the pack's evaluation files.
    """

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """How a workspace or a repository is checked.

    Attributes:
        command: The argv; empty when the check is a file of the pack.
        workdir: Absolute working folder.
        timeout_seconds: Time limit of the check.
        capabilities: Linux capabilities for dangerous commands that the tester allowed.
        source: Present if the check is a file of the pack.
        skips: Ids, or patterns of them, of tests that may be skipped.
        plugins: Plugins of the image's pytest that run beside a file of the pack.
    """

    command: tuple[str, ...]
    workdir: str
    timeout_seconds: float
    capabilities: tuple[str, ...] = ()
    source: SourcePlan | None = None
    skips: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()

    @property
    def is_pytest(self) -> bool:
        """Whether the check is pytest files of the pack, which may import candidate code."""
        return self.source is not None and self.source.kind == PYTEST


def check_plan(request: PlanRequest, check: CheckRequest) -> CheckPlan:
    """Return the check of a row without a configuration error."""
    return CheckPlan(
        command=argv_of(check.command),
        workdir=_folder(check.base or request.workspace, check.workdir),
        timeout_seconds=first_limit(check.timeouts, CHECK_SECONDS),
        capabilities=request.decision.capabilities,
        source=_source(request.task),
        skips=check.skips,
        plugins=check.plugins,
    )


def _source(task: SecureBenchTask) -> SourcePlan | None:
    reference = checker_reference(task)
    checker = task.resources.value("checker")
    if reference is None or not isinstance(checker, Mapping):
        return None
    return SourcePlan(str(checker.get("source")), reference.source)


def _folder(workspace: str, workdir: object) -> str:
    if not isinstance(workdir, str):
        return workspace
    return workdir if workdir.startswith("/") else f"{workspace}/{workdir}"


def supervised_verdict(known: VerifierResult, left: Left, container: str) -> VerifierResult:
    """Return the verdict of a command that supervise ran, by its exit code.

    Args:
        known: What is known of the launch.
        left: What it left.
        container: The container that ended it.

    Raises:
        BadMessageError: The courier's message cannot be read.
    """
    report = container_report(left.view, container, left.code)
    stdout, stderr = collected_streams(left.message(layout.COURIER))
    known = replace(known, command=report, stdout=stdout, stderr=stderr)
    if left.code in {Code.DONE, Code.FAILED, Code.TIMED_OUT}:
        return replace(known, passed=left.code == Code.DONE)
    if left.code == Code.UNFIT:
        reason = f"{report.phase}: {report.error or f'exit code {report.exit_code}'}"
        return replace(known, problem=VERIFIER_CONFIGURATION, message=reason)
    reason = f"the check's preparation failed: {report.error or report.phase}"
    return replace(known, problem=VERIFIER_ERROR, message=reason)


def check_metadata(
    task: TaskPlan, check: CheckPlan, verification: VerifierResult
) -> dict[str, object]:
    """Return what the record of a check in a task's image says of it."""
    return {
        **command_fields(verification.command),
        "image": task.environment.image,
        "workspace_root": f"workspaces/{logical_name(task.task.id)}",
        "workdir": check.workdir,
        "timed_out": verification.command.timed_out,
        "timeout_seconds": check.timeout_seconds,
        **({"failure_reason": VERIFIER_TIMEOUT} if verification.command.timed_out else {}),
    }


def runner_text() -> str:
    """Return the program that runs pytest in a task image, as text for ``python3 -c``."""
    return (PROGRAMS / "pytest_runner.py").read_text("utf-8")


def row_variable(check: CheckPlan) -> dict[str, str]:
    """Return what the runner is told of a row, as a variable."""
    calls = counted_calls(check.command) or 1
    row = {"skips": check.skips, "plugins": check.plugins, "calls": calls}
    return {ROW_VARIABLE: json.dumps(row)}


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
    return Phase(COMPILED, command, workdir, PRECHECK_SECONDS, user=user, ready=True)


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
