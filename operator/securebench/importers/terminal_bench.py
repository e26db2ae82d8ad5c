"""A pack from task folders of Terminal-Bench and Harbor.

Each task becomes a ``terminal_task``: the agent works in a copy of its image's working folder, and
the tests look at that folder only.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from securebench.benchmark.pack.environment import MOUNT_TARGETS
from securebench.benchmark.pack.paths import EVALUATION_ROOT, is_at_or_below
from securebench.core.errors import ConfigErrors, PackError
from securebench.importers.dockerfile import (
    DEFAULT_WORKDIR,
    Additions,
    defects,
    instructions,
    with_additions,
    workdir,
)
from securebench.importers.import_findings import ImportFindings
from securebench.importers.task_folder import (
    COMPOSE_NAMES,
    HARBOR,
    TERMINAL_BENCH,
    TaskFolder,
    is_task_folder,
    read_task,
    text_of,
)
from securebench.importers.test_script import TestScript, read_script
from securebench.run import layout

HIDDEN_NAMES = frozenset({"tests", "solution", "solution.sh", "solution.yaml", "run-tests.sh"})
"""Names of a Terminal-Bench task folder, its build context, that must never be in an image."""

WRITTEN = ("manifest.yaml", "tasks.jsonl", "hidden", "images", "oracle")
"""What an import writes; everything else in the pack's folder is left alone."""

IMAGE_PREFIX = "securebench/"
IMAGE_VERSION = 1

_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_LEFT_OUT = frozenset({"__pycache__", ".git", ".DS_Store", ".pytest_cache"})
_TESTS_PATH = re.compile(rb"(?<![\w./-])/tests(?=[/\"'\s)]|$)")
_TEXT_SUFFIXES = frozenset({".py", ".sh"})


@dataclass(frozen=True, slots=True)
class ImportedTask:
    """One task, ready to be written.

    Args:
        tests_root: Folder above the tests in the verifier's container.
        answer: Reference command, or None.
    """

    source: TaskFolder
    row: Mapping[str, object]
    tests_root: str
    dockerfile: str | None
    answer: str | None


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import found.

    Args:
        tasks: Names of the imported tasks.
        errors: Why the others are not imported.
    """

    tasks: tuple[str, ...]
    errors: tuple[PackError, ...] = ()
    remarks: tuple[str, ...] = field(default=())


def import_terminal_bench(
    folder: Path, target: Path, *, pack_id: str, skip: bool = False, replace: bool = False
) -> ImportResult:
    """Write a pack.

    Args:
        folder: A task folder, or a folder of task folders.
        target: Folder of the pack.
        pack_id: Id of the pack; also part of the images' names.
        skip: Leave tasks out that cannot be imported; otherwise nothing is written then.
        replace: Put it in the place of an earlier import, which stays until this one is complete.

    Raises:
        ConfigErrors: There is nothing to import, the target is taken, or tasks cannot be imported
            and are not to be skipped: one error for each reason, with its file.
        OSError: The pack could not be written; an earlier one is as it was.
    """
    if not _NAME.fullmatch(pack_id):
        raise ConfigErrors([PackError(f"{pack_id!r} cannot be part of an image's name")])
    taken = _taken(target)
    if taken and not replace:
        reason = f"holds {', '.join(taken)} already; remove it or use --replace"
        raise ConfigErrors([PackError(reason, path=str(target))])
    tasks: list[ImportedTask] = []
    errors: list[PackError] = []
    remarks: list[str] = []
    for source in _task_folders(folder):
        findings = ImportFindings()
        task = _imported(source, pack_id, findings)
        errors += findings.errors
        if task is not None and not findings.errors:
            tasks.append(task)
            remarks += findings.remarks
    if not tasks or (errors and not skip):
        raise ConfigErrors(
            errors or [PackError("holds no task.yaml or task.toml", path=str(folder))]
        )
    _write(tasks, target, pack_id)
    names = tuple(task.source.name for task in tasks)
    return ImportResult(names, tuple(errors), tuple(remarks))


def _task_folders(folder: Path) -> Iterator[Path]:
    if is_task_folder(folder):
        yield folder
        return
    for place in (folder, folder / "tasks"):
        found = sorted(path for path in place.glob("*") if is_task_folder(path))
        if found:
            yield from found
            return


def _imported(folder: Path, pack_id: str, findings: ImportFindings) -> ImportedTask | None:
    if not _NAME.fullmatch(folder.name):
        findings.refuse(folder, "the folder's name cannot be part of an image's name")
    for path in _entries(folder):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            findings.refuse(path, "packs hold files and folders only")
    task = read_task(folder, findings)
    text = None if task is None else text_of(task.script, findings)
    if task is None or text is None:
        return None
    script = read_script(text)
    dockerfile, place = _image(task, script, findings)
    row = {
        "id": task.name,
        "input": {"instructions": task.instruction.strip()},
        "environment": {
            "image": task.image or f"{IMAGE_PREFIX}{pack_id}-{task.name}:{IMAGE_VERSION}",
            "workdir": place,
            "materialize_workdir_from_image": True,
            "timeout_seconds": task.agent_seconds,
        },
        "eval": _eval(task, script, place, findings),
        "metadata": {"format": _format(task), **task.labels},
    }
    root = layout.EVALUATOR if script.is_plain_pytest else f"{place}/{EVALUATION_ROOT}"
    return ImportedTask(task, row, root, dockerfile, _answer(task, findings))


def _format(task: TaskFolder) -> str:
    return "harbor" if (task.folder / HARBOR).is_file() else "terminal-bench"


def _image(
    task: TaskFolder, script: TestScript, findings: ImportFindings
) -> tuple[str | None, str]:
    """Return the text of the Dockerfile, if there is one, and the working folder."""
    if task.image is not None:
        if task.variables or script.pip or script.apt:
            findings.refuse(task.folder / HARBOR, "a ready image cannot get what the tests need")
        return None, DEFAULT_WORKDIR
    text = text_of(task.dockerfile, findings)
    if text is None:
        return None, DEFAULT_WORKDIR
    found = instructions(text)
    for defect in defects(found, _hidden_names(task)):
        findings.refuse(task.dockerfile, defect.reason, defect.line)
    place = workdir(found)
    if not any(is_at_or_below(place, target) for target in MOUNT_TARGETS):
        reason = f"WORKDIR {place} cannot be a workspace; possible are {', '.join(MOUNT_TARGETS)}"
        findings.refuse(task.dockerfile, reason)
    additions = Additions(task.variables, script.apt, script.pip, script.is_plain_pytest)
    return with_additions(text, additions), place


def _eval(
    task: TaskFolder, script: TestScript, place: str, findings: ImportFindings
) -> dict[str, object]:
    checker: dict[str, object] = {"timeout_seconds": task.test_seconds}
    if script.is_plain_pytest:
        _check_targets(task, script, findings)
        return {"checker": {"source": "pytest", "path": task.name, **checker}}
    if script.uses_network or _format(task) == "harbor" or not script.unmapped:
        for line in script.unmapped:
            reason = "is neither an installation nor a plain call of pytest on the tests"
            findings.refuse(task.script, f"{line.text!r} {reason}", line.line)
        if not script.unmapped:
            findings.refuse(task.script, "runs no tests")
    folder = f"{place}/{EVALUATION_ROOT}/{task.name}"
    command = f"TEST_DIR={shlex.quote(folder)} bash {shlex.quote(f'{folder}/{task.script.name}')}"
    return {"checker": {"command": command, **checker}, "test_files": {"path": task.name}}


def _check_targets(task: TaskFolder, script: TestScript, findings: ImportFindings) -> None:
    """Compare what the script runs with what pytest finds in the folder by itself."""
    if not task.tests.is_dir():
        findings.refuse(task.tests, "there are no tests")
        return
    if "." in script.targets:
        return
    found = {
        path.relative_to(task.tests).as_posix()
        for pattern in ("test_*.py", "*_test.py")
        for path in task.tests.rglob(pattern)
    }
    if found != set(script.targets):
        findings.refuse(task.script, "runs other tests than all of the folder tests")


def _answer(task: TaskFolder, findings: ImportFindings) -> str | None:
    if task.solution is None:
        return None
    others = [path.name for path in task.solution.parent.iterdir() if path != task.solution]
    if task.solution.parent.name == "solution" and others:
        findings.remark(task.solution, "needs further files; no oracle is made")
        return None
    text = text_of(task.solution, findings)
    end = "END_OF_THE_SOLUTION"
    return f"cat > /tmp/solution.sh <<'{end}'\n{text}\n{end}\nbash /tmp/solution.sh\n"


def _taken(target: Path) -> list[str]:
    return [name for name in WRITTEN if os.path.lexists(target / name)]


def _write(tasks: Sequence[ImportedTask], target: Path, pack_id: str) -> None:
    """Write a pack beside its place, and exchange it with an earlier one when it is complete."""
    place = target.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=place.parent, prefix=f".{place.name}-") as scratch:
        new, old = Path(scratch, "new"), Path(scratch, "old")
        _write_pack(tasks, new, pack_id)
        place.mkdir(exist_ok=True)
        old.mkdir()
        _exchange(new, place, old)


def _exchange(new: Path, place: Path, old: Path) -> None:
    """Move what an import wrote to its place, and what was there away; undo it if that fails."""
    with ExitStack() as undo:
        for source, target in ((place, old), (new, place)):
            for name in _taken(source):
                shutil.move(source / name, target / name)
                undo.callback(shutil.move, target / name, source / name)
        undo.pop_all()


def _write_pack(tasks: Sequence[ImportedTask], target: Path, pack_id: str) -> None:
    manifest = {"id": pack_id, "version": 1, "defaults": {"family": "terminal_task"}}
    _put(target / "manifest.yaml", yaml.safe_dump(manifest, sort_keys=False))
    _put(target / "tasks.jsonl", _lines([task.row for task in tasks]))
    answers = [{"id": task.source.name, "command": task.answer} for task in tasks if task.answer]
    _put(target / "oracle" / "answers.jsonl", _lines(answers))
    for task in tasks:
        _write_tests(task, target / "hidden" / task.source.name)
        if task.dockerfile is not None:
            context = target / "images" / task.source.name
            _copy(task.source.context, context, left_out=_no_context(task.source))
            _put(context / "Dockerfile", task.dockerfile)


def _no_context(source: TaskFolder) -> frozenset[str]:
    return frozenset({TERMINAL_BENCH, "Dockerfile", *COMPOSE_NAMES}) | _hidden_names(source)


def _hidden_names(source: TaskFolder) -> frozenset[str]:
    return HIDDEN_NAMES if source.context == source.folder else frozenset()


def _write_tests(task: ImportedTask, target: Path) -> None:
    source = task.source
    if source.tests.is_dir():
        _copy(source.tests, target, left_out=frozenset())
    target.mkdir(parents=True, exist_ok=True)
    if source.script.parent == source.folder:
        shutil.copyfile(source.script, target / source.script.name)
    for path in target.rglob("*"):
        if path.is_file() and path.suffix in _TEXT_SUFFIXES:
            place = f"{task.tests_root}/{source.name}".encode()
            path.write_bytes(_TESTS_PATH.sub(place, path.read_bytes()))


def _copy(source: Path, target: Path, *, left_out: frozenset[str]) -> None:
    def ignored(folder: str, names: list[str]) -> set[str]:
        top = left_out if Path(folder) == source else frozenset()
        return {name for name in names if name in top | _LEFT_OUT}

    target.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)


def _entries(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if not _LEFT_OUT & set(path.relative_to(folder).parts):
            yield path


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _lines(values: Sequence[object]) -> str:
    return "".join(f"{json.dumps(value, ensure_ascii=False)}\n" for value in values)
