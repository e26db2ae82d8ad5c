"""Checks everything that grades the tasks of a pack. Reads files of the pack, runs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.families.verification import PYTEST
from securebench.benchmark.files.assets import asset_source
from securebench.benchmark.lint.pack_lint import LintFinding, LintRule, Severity
from securebench.benchmark.lint.patch_files import patch_problem
from securebench.benchmark.lint.problem import GraderProblem
from securebench.benchmark.lint.sources import has_no_test, is_test_module, source_problem
from securebench.benchmark.pack.lane_plan import materialization_plan
from securebench.benchmark.pack.paths import EVALUATION_ROOT, is_at_or_below
from securebench.benchmark.pack.references import FileReference, asset_root, checker_reference
from securebench.benchmark.resources import Component
from securebench.errors import PackError

if TYPE_CHECKING:
    from securebench.benchmark.files.load import CheckedPack
    from securebench.benchmark.pack.task import SecureBenchTask

NO_TEST: Final = "holds no test that pytest could find: no function test_…, no class Test…"
CONFTEST: Final = "conftest.py"
_PYTHON_LINE: Final = re.compile(rb"#!.*\bpython[0-9.]*\b")
_PLACE: Final = re.compile(rf"(?<![\w.-]){re.escape(EVALUATION_ROOT)}/([\w./-]*\w)")
"""A path of a command that can only be a file which the pack brings for the check."""


def lint_graders(checked: CheckedPack) -> tuple[LintFinding, ...]:
    """Return what is wrong with answers, tests, checkers and patches, in file order.

    Args:
        checked: What ``check_pack`` found; rows that do not hold are left out.

    Returns:
        Errors for what is certain in every image, warnings for the rest.
    """
    if checked.pack is None:
        return ()
    root = Path(checked.pack.manifest.path or "").parent
    path = checked.pack.tasks_path
    return tuple(
        LintFinding(
            Severity.ERROR if problem.is_certain else Severity.WARNING,
            path,
            item.row.line,
            f"task {item.task.id!r} ({item.task.task_type}): {problem.message}",
            LintRule.GRADER,
        )
        for item in checked.tasks
        for problem in _problems(item.task, root)
    )


def _problems(task: SecureBenchTask, root: Path) -> Iterator[GraderProblem]:
    family = FAMILIES.get(task.task_type)
    if family is None:
        return
    yield from map(GraderProblem, family.answer_problems(task))
    for name, source in family.test_sources(task):
        found = source_problem(source, name)
        if found is not None:
            yield found
    for name, patch in family.patches(task):
        broken = patch_problem(patch)
        if broken is not None:
            yield GraderProblem(f"{name}, {broken}")
    try:
        if family.has_checker:
            yield from _checker(task, root)
    except PackError:
        return  # an error of the pack itself, which check_pack names


def _checker(task: SecureBenchTask, root: Path) -> Iterator[GraderProblem]:
    checker = task.resources.value("checker")
    if not isinstance(checker, Mapping):
        return
    reference = checker_reference(task)
    if reference is None:
        yield from _command_places(task, checker.get("command"))
        return
    source = asset_source(root, asset_root(task, reference.lane), reference)
    if checker.get("source") == PYTEST:
        yield from _pytest_sources(reference, source)
    elif _is_python(source):
        yield from _compiled(source, reference.source)


def _command_places(task: SecureBenchTask, command: object) -> Iterator[GraderProblem]:
    """Yield files below the evaluation inputs that a command names and the task does not bring."""
    words = command if isinstance(command, list) else [command]
    known = materialization_plan(task, Component.TEST_SANDBOX).paths
    named = {match[0] for word in words if isinstance(word, str) for match in _PLACE.finditer(word)}
    for place in sorted(named):
        if not any(is_at_or_below(place, path) or is_at_or_below(path, place) for path in known):
            said = f"eval.checker.command names {place!r}, which the task has not"
            yield GraderProblem(f"{said}: bring it by eval.test_files or eval.run_tests")


def _pytest_sources(reference: FileReference, source: Path) -> Iterator[GraderProblem]:
    if source.is_file():
        found = list(_compiled(source, reference.source))
        yield from found
        if not found and has_no_test(source.read_bytes()):
            yield GraderProblem(f"{reference.source} {NO_TEST}")
        return
    names = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.py"))
    tests = [name for name in names if is_test_module(name)]
    found = [
        problem
        for name in names
        for problem in _compiled(source / name, f"{reference.source}/{name}", is_test=name in tests)
    ]
    yield from found
    is_plain = not found and not any(name.rpartition("/")[2] == CONFTEST for name in names)
    if is_plain and all(has_no_test((source / name).read_bytes()) for name in tests):
        yield GraderProblem(f"{reference.source} {NO_TEST}")


def _compiled(path: Path, name: str, *, is_test: bool = True) -> Iterator[GraderProblem]:
    found = source_problem(path.read_bytes(), name)
    if found is not None:
        yield found._replace(is_certain=found.is_certain and is_test)


def _is_python(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.readline(256)
    return _PYTHON_LINE.match(first) is not None
