"""The check of a candidate workspace: its containers, its phases, and what runs before them.

``Member`` is what a verifier Pod judges. The phases of a check are a command of the author, or a
file of the pack. Tests of a repository are counted where its command certainly starts pytest.
Prechecks run before the candidate is staged: a failure there is the pack's fault.

Source: contract 21.14, 21.15, docs/reference/checks.md, decisions 0021 and 0105.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING

from securebench.benchmark.families.counted_commands import (
    PYTHON_NAME,
    SHELL,
    counted_calls,
    with_runner,
)
from securebench.benchmark.pack.lane_plan import checker_reference
from securebench.benchmark.pack.paths import EVALUATION_ROOT
from securebench.protocol.grading import ROW_VARIABLE, RUNNER_VARIABLE
from securebench.protocol.messages import FRAMEWORK_FOLDER, DigestedPath
from securebench.protocol.supervise import CandidateSpec, Phase, RunSpec, Transfer
from securebench.reasons import FailurePhase
from securebench.run import layout
from securebench.run.pods import volumes
from securebench.run.pods.containers import (
    PYTHON,
    TaskContainer,
    base_spec,
    task_container,
    verifier_courier,
)
from securebench.run.pods.frame import Containers, Manifest
from securebench.run.pods.volumes import (
    asset_mounts,
    asset_places,
    beside_mounts,
    beside_volume,
    candidate_file,
    candidate_mount,
    inside,
    lane_mount,
    tools_mount,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.benchmark.pack.lane_plan import LaneSet
    from securebench.run.plan.model import CheckPlan, ClusterFacts, LaunchKey, RunPlan, TaskPlan
    from securebench.run.state.attempts import SealedCandidate


PROGRAMS = files("securebench.grading") / "checks"
"""Programs of task images: text here, which nothing of the operator imports."""


def _runner_text() -> str:
    """Return the program that runs pytest in a task image, as text for ``python3 -c``."""
    return (PROGRAMS / "pytest_runner.py").read_text("utf-8")


TESTS = "tests of the pack"
"""Precheck: what it finds is the pack's fault, whatever the candidate is."""


COLLECTED = f"{layout.OUTPUT}/collected.json"
"""What the tests do before the candidate is there."""


RUNNER = (PYTHON, "-I", "-S", "-B", "-c", _runner_text())
"""Isolated mode without ``site``: no variable, no folder of the user, no working folder and no
file among the packages adds a module."""


INCOMPLETE = "the report of the tests is no pass"
"""Stderr ends with it when a command succeeds and its tests did not."""


ISOLATED = ("-I", "-S", "-B", "-c")


LOADER = f"import os; exec(os.environ[{RUNNER_VARIABLE!r}])"
"""The runner of an argv; its text is long, and a specification is one argument."""


CONTROL_RUN = "control run of the tests"


CONTROL_REPORT = f"{layout.OUTPUT}/control.json"
"""What the tests do on the base, before the candidate is there."""


ANYHOW = ("sh", "-c", '"$@"; exit 0', "sh")
"""Runs a command whose exit code says nothing."""


PRECHECK_SECONDS = 60.0
"""A precheck that takes longer has found nothing; most need less than a second."""


PROGRAM = "program of the check"


FILE = "file of the check"


COMPILED = "Python sources of the tests"


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
class Member:
    """One candidate to judge; only those of text families share a Pod.

    Attributes:
        task: It has a verifier.
        launch: Role ``verifier``.
        lanes: What lies on the volume for the task.
        candidate: What the harness left; it has a file.
    """

    task: TaskPlan
    launch: LaunchKey
    lanes: LaneSet
    candidate: SealedCandidate


def check_containers(
    plan: RunPlan, check: CheckPlan, member: Member, facts: ClusterFacts
) -> Containers:
    """Return what runs a task's check on a copy of the candidate.

    Args:
        plan: The run.
        check: The task's check.
        member: What is judged; its candidate is a workspace.
        facts: What the cluster has told of the run.
    """
    task, lanes = member.task, member.lanes
    container = TaskContainer(
        name=layout.CHECK,
        image=task.image,
        resources=_resources(plan),
        tools=tools_mount(plan.pods),
        mounts=_mounts(plan, member),
        shared_memory=layout.CHECK,
        read_only_root=False,
        capabilities=check.capabilities,
    )
    return Containers(
        main=task_container(container, _run_spec(plan, check, member, facts)),
        volumes=_volumes(plan, task, lanes),
        init=[verifier_courier(plan, member.launch)],
    )


def _beside(task: TaskPlan, lanes: LaneSet) -> list[Manifest]:
    return beside_mounts([EVALUATION_ROOT, *asset_places(lanes)], task.workspace)


def _mounts(plan: RunPlan, member: Member) -> list[Manifest]:
    task, lanes = member.task, member.lanes
    evaluation_inputs = [inside(task, EVALUATION_ROOT)]
    if checker_reference(task.task) is not None:
        evaluation_inputs.append(layout.EVALUATOR)
    return [
        volumes.mount(volumes.WORKSPACE, task.workspace),
        *_beside(task, lanes),
        *asset_mounts(plan, task, lanes),
        *(
            lane_mount(plan, task, layout.LANE_EVALUATION_INPUTS, place)
            for place in evaluation_inputs
        ),
        lane_mount(plan, task, layout.LANE_PUBLIC, layout.PUBLIC),
        candidate_mount(plan, member.launch, member.candidate, layout.CANDIDATE),
        volumes.mount(volumes.OUTPUT, layout.OUTPUT),
        volumes.mount(volumes.HOME, layout.HOME),
        volumes.mount(volumes.TEMPORARY, layout.TEMPORARY),
    ]


def _run_spec(plan: RunPlan, check: CheckPlan, member: Member, facts: ClusterFacts) -> RunSpec:
    task, lanes = member.task, member.lanes
    evaluation_inputs = inside(task, EVALUATION_ROOT)
    archive = candidate_file(member.candidate, layout.CANDIDATE)
    own_files = f"{layout.PUBLIC_FILES}/{FRAMEWORK_FOLDER}"
    return replace(
        base_spec(plan, facts, plan.limits.stream_bytes),
        verdict=True,
        lanes=(
            DigestedPath(layout.PUBLIC, lanes.public_digest),
            DigestedPath(evaluation_inputs, lanes.evaluation_inputs_digest),
        ),
        candidate=CandidateSpec(archive.path, archive.digest, task.workspace),
        copies=(Transfer(own_files, inside(task, FRAMEWORK_FOLDER)),),
        protected=(evaluation_inputs, *(inside(task, place) for place in asset_places(lanes))),
        home=layout.HOME,
        prechecks=tuple(checker_prechecks(task, check, lanes)),
        phases=tuple(checker_phases(task, check, lanes)),
        open_modes=(layout.OUTPUT,),
    )


def _volumes(plan: RunPlan, task: TaskPlan, lanes: LaneSet) -> list[Manifest]:
    return [
        volumes.claim(plan.pods.claim),
        volumes.empty_dir(volumes.WORKSPACE, volumes.workspace_bytes(plan.pods)),
        volumes.empty_dir(volumes.OUTPUT, _output_bytes(plan)),
        volumes.empty_dir(volumes.TEMPORARY, volumes.TEMPORARY_BYTES),
        *beside_volume(_beside(task, lanes), plan.pods),
        volumes.empty_dir(volumes.HOME, volumes.HOME_BYTES),
        volumes.shared_memory(layout.CHECK),
    ]


def _resources(plan: RunPlan) -> Manifest:
    storage = (
        volumes.workspace_bytes(plan.pods)
        + _output_bytes(plan)
        + volumes.TEMPORARY_BYTES
        + volumes.HOME_BYTES
        + volumes.ROOT_BYTES
        + volumes.MARGIN_BYTES
    )
    return volumes.task_resources(plan.pods, storage)


def _output_bytes(plan: RunPlan) -> int:
    return volumes.output_bytes(plan.limits.stream_bytes, plan.limits)


"""Name of the phase, and the ``phase`` of the record (contract 14.6)."""


def checker_phases(task: TaskPlan, check: CheckPlan, lanes: LaneSet) -> list[Phase]:
    """Return what supervise runs one after the other; the last one decides.

    Args:
        task: The task.
        check: Its check.
        lanes: Tells whether the checker's file is a folder.
    """
    if check.source is None:
        is_ready = not is_of_candidate(check, task.workspace)
        phase = Phase(FailurePhase.CHECKER, check.command, check.workdir, check.timeout_seconds)
        return [replace(phase, is_ready=is_ready, is_guarded=True)]
    path = f"{layout.EVALUATOR}/{check.source.path}"
    variables = _variables(task, path, lanes)
    phase = Phase(
        FailurePhase.CHECKER,
        (path,),
        check.workdir,
        check.timeout_seconds,
        variables,
    )
    if not check.is_pytest:
        return [replace(phase, is_script=True, is_ready=True, is_guarded=True, sources=SOURCES)]
    env = variables | _row_variable(check)
    command = _pytest(task, "run", path)
    return [replace(phase, command=command, env=env, is_ready=True, is_guarded=True)]


def checker_prechecks(task: TaskPlan, check: CheckPlan, lanes: LaneSet) -> list[Phase]:
    """Return what examines the pack's own part before the candidate is there."""
    if check.source is None:
        return command_prechecks(check, task.workspace)
    if not check.is_pytest:
        return []
    path = f"{layout.EVALUATOR}/{check.source.path}"
    command = _pytest(task, "check", path)
    env = _variables(task, path, lanes) | _row_variable(check)
    return [Phase(TESTS, command, check.workdir, PRECHECK_SECONDS, env)]


def _pytest(task: TaskPlan, verb: str, path: str) -> tuple[str, ...]:
    places = (task.workspace, layout.PYTEST_BUNDLE, layout.EVALUATOR, path, COLLECTED)
    return (*RUNNER, verb, *places)


def _variables(task: TaskPlan, path: str, lanes: LaneSet) -> dict[str, str]:
    return {
        "SECUREBENCH_WORKSPACE": task.workspace,
        "SECUREBENCH_EVALUATOR": layout.EVALUATOR,
        "TEST_DIR": path if lanes.checker_is_folder else path.rpartition("/")[0],
    }


def counted(check: CheckPlan, known: str = CONTROL_REPORT) -> Phase:
    """Return the phase that runs a repository's tests.

    Args:
        check: Its check. A command that certainly starts pytest gets our runner in its place and
            has to prove a pass; every other one is judged by its exit code alone.
        known: File with the report of the control run.
    """
    phase = Phase(FailurePhase.CHECKS, check.command, check.workdir, check.timeout_seconds)
    if not check.counts_tests:
        return phase
    return Phase(
        FailurePhase.CHECKS,
        _command(check, known, "patch", "script"),
        check.workdir,
        check.timeout_seconds,
        env=_counting_variables(check),
        proof=INCOMPLETE,
    )


def control_run(check: CheckPlan, known: str = CONTROL_REPORT) -> list[Phase]:
    """Return the precheck that runs counted tests on the base; it finds no fault with anybody."""
    if not check.counts_tests:
        return []
    command = (*ANYHOW, *_command(check, known, "base", "base-script"))
    env = _counting_variables(check)
    return [Phase(CONTROL_RUN, command, check.workdir, check.timeout_seconds, env=env)]


def _row_variable(check: CheckPlan) -> dict[str, str]:
    """Return what the runner is told of a row, as a variable."""
    calls = counted_calls(check.command) or 1
    row = {"skips": check.skips, "plugins": check.plugins, "calls": calls}
    return {ROW_VARIABLE: json.dumps(row)}


def _counting_variables(check: CheckPlan) -> Mapping[str, str]:
    return {RUNNER_VARIABLE: _runner_text(), **_row_variable(check)}


def _command(check: CheckPlan, known: str, module: str, script: str) -> tuple[str, ...]:
    def words(name: str) -> tuple[str, ...]:
        return (script, known, name) if name else (module, known)

    return with_runner(
        check.command,
        lambda name: (*ISOLATED, LOADER, *words(name)),
        lambda name: (*ISOLATED, f'"${RUNNER_VARIABLE}"', *words(name)),
    )


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
