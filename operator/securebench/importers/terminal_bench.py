"""The command ``securebench pack import``: a pack from task folders of Terminal-Bench and Harbor.

Each task becomes a ``terminal_task``: the agent works in a copy of its image's working folder, and
the tests look at that folder only. The script of a task folder (run-tests.sh, tests/test.sh)
usually fetches a test runner and then starts pytest. Tests have no network here: the image must
hold what the script fetches, and the verifier itself starts pytest.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import yaml

from securebench.benchmark.pack.paths import EVALUATION_ROOT, MOUNT_TARGETS, is_at_or_below
from securebench.client.output import print_error, print_line
from securebench.errors import ConfigErrors, PackError
from securebench.importers.task_folder import (
    COMPOSE_NAMES,
    HARBOR,
    TERMINAL_BENCH,
    ImportFindings,
    TaskFolder,
    is_task_folder,
    read_task,
    text_of,
)
from securebench.run import layout

DEFAULT_WORKDIR = "/app"
"""Where an image is entered whose Dockerfile does not say so; the usual bases are made that way."""

IDLE = re.compile(
    r"(\S*/)?((ba)?sh|python3?|sleep [^;&|]+|tail -f [^;&|]+|(ba)?sh -l?c (sleep|tail) [^;&|]+)"
)
"""Commands that only keep a container alive; nothing is lost when they are not run."""

_ADDED = "# Added by securebench pack import: "


class Instruction(NamedTuple):
    """One instruction of a Dockerfile: upper-case name, the rest, line number from 1."""

    name: str
    rest: str
    line: int


class Defect(NamedTuple):
    """Why a Dockerfile cannot be used."""

    reason: str
    line: int


def instructions(text: str) -> list[Instruction]:
    """Return the instructions of a Dockerfile; texts of here-documents are left out."""
    found: list[Instruction] = []
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        whole = line.strip()
        if not whole or whole.startswith("#"):
            continue
        while whole.endswith("\\"):
            _, more = next(lines, (0, ""))
            stripped = more.strip()
            whole = whole[:-1] + " " + ("\\" if stripped.startswith("#") else stripped)
        name, *words = re.split(r"\s", whole, maxsplit=1)
        rest = "".join(words)
        found.append(Instruction(name.upper(), rest.strip(), number))
        for marker in re.findall(r"<<-?\s*[\"']?(\w+)", rest):
            for _, inner in lines:
                if inner.strip() == marker:
                    break
    return found


def workdir(found: Iterable[Instruction]) -> str:
    """Return the working folder of the last stage."""
    folder = DEFAULT_WORKDIR
    for item in _last_stage(found):
        if item.name == "WORKDIR":
            named = item.rest.strip("\"'")
            folder = named if named.startswith("/") else f"{folder.rstrip('/')}/{named}"
    return folder.rstrip("/") or "/"


def _last_stage(found: Iterable[Instruction]) -> Sequence[Instruction]:
    """Return the instructions of the last stage behind those of the stages it is made from."""
    stages: dict[str, list[Instruction]] = {}
    stage: list[Instruction] = []
    number = 0
    for item in found:
        if item.name == "FROM":
            base, *named = _words(item.rest.lower()) or [""]
            stage = list(stages.get(base, ()))
            stages |= dict.fromkeys((str(number), *named[1:]), stage)
            number += 1
        stage.append(item)
    return stage


def defects(found: Sequence[Instruction], hidden: Collection[str] = ()) -> list[Defect]:
    """Return everything for which an image cannot be a task's image here.

    Args:
        found: The Dockerfile.
        hidden: Names at the top of the build context that no agent may see.
    """
    result = [Defect("there is no FROM", 1)] if all(i.name != "FROM" for i in found) else []
    for item in found:
        if item.name in {"COPY", "ADD"} and "--from" not in item.rest:
            named = [word for word in _words(item.rest)[:-1] if _top(word) in hidden]
            result += [
                Defect(
                    f"{item.name} puts {word!r} into the image, where the agent sees it", item.line
                )
                for word in named
            ]
        elif item.name == "ENTRYPOINT" or (item.name == "CMD" and not _is_idle(item.rest)):
            reason = (
                f"{item.name} starts a program; containers of a run start the task's command only"
            )
            result.append(Defect(reason, item.line))
        elif item.name == "WORKDIR" and "$" in item.rest:
            result.append(Defect("a WORKDIR with a variable is not supported", item.line))
    return result


def with_additions(
    text: str,
    variables: Mapping[str, str],
    apt: Sequence[str] = (),
    pip: Sequence[str] = (),
    *,
    needs_python: bool = False,
) -> str:
    """Return a Dockerfile with what the task needs besides, in the order of its dependencies.

    Args:
        variables: Variables of the compose file or the task configuration.
        apt: Debian packages that the test script installs.
        pip: Python packages that it installs.
        needs_python: Whether tests need a python3 that the image may lack.
    """
    found = instructions(text)
    lines = [f"ENV {name}={json.dumps(value)}" for name, value in variables.items()]
    lines += _installs(found, apt, pip, needs_python=needs_python)
    if not lines:
        return text if text.endswith("\n") else f"{text}\n"
    user = next((i.rest for i in reversed(_last_stage(found)) if i.name == "USER"), "")
    block = ["USER root", *lines, f"USER {user}"] if user else lines
    note = f"{_ADDED}variables, and what the tests would fetch, for they have no network."
    return "\n".join([text.rstrip("\n"), "", note, *block, ""])


def _installs(
    found: Sequence[Instruction], apt: Sequence[str], pip: Sequence[str], *, needs_python: bool
) -> list[str]:
    lines = []
    python = _has_python(found)
    packages = list(apt)
    if needs_python and not python:
        packages += ["python3", "python3-pip"] if pip else ["python3"]
    if packages:
        names = " ".join(sorted(set(packages)))
        lines.append(
            f"RUN apt-get update && apt-get install -y --no-install-recommends {names}"
            " && rm -rf /var/lib/apt/lists/*"
        )
    if pip:
        names = " ".join(_quoted(name) for name in pip)
        lines.append(
            f"RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir {names}"
        )
    return lines


def _has_python(found: Sequence[Instruction]) -> bool:
    named = " ".join(i.rest for i in found if i.name in {"FROM", "ARG", "RUN"})
    return "python" in named.lower()


def _words(rest: str) -> list[str]:
    if rest.startswith("["):
        try:
            listed = json.loads(rest)
        except (ValueError, RecursionError):
            return []
        return [str(word) for word in listed]
    return [word for word in rest.split() if not word.startswith("--")]


def _top(word: str) -> str:
    return word.strip("\"'").removeprefix("./").strip("/").partition("/")[0]


def _is_idle(rest: str) -> bool:
    return IDLE.fullmatch(" ".join(_words(rest)).replace('"', "").replace("'", "")) is not None


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.=+-]+", name) else f"'{name}'"


NETWORK = re.compile(
    r"\b(apt|apt-get|apk|yum|dnf|curl|wget|pip3?|uv|uvx|npm|npx|yarn|cargo|gem|git clone)\b"
)
OURS = re.compile(r"pytest(-json-ctrf)?([=<>~!@\[].*)?$")
"""Packages that the verifier brings, or that only make a report."""

_NOTHING = re.compile(
    r"(set|echo|printf|cd|exit|true|:)(\s.*|$)|then|else|fi|deactivate"
    r"|(source|\.)\s+(\"?)\S*/(activate|\.cargo/env|\.local/bin/env)\4"
    r"|export PATH=.*|mkdir -p /logs\S*"
)
_REPORT = re.compile(
    r"[12&]?>>?\s*(&[12]|/dev/(null|stdout|stderr)"
    r"|\"/logs/(?!\S*\.\.)[\w./-]+\"|/logs/(?!\S*\.\.)[\w./-]+)(?=\s|$)"
)
"""Output that goes nowhere, or into the logs of the harness."""
_QUOTED = re.compile(r"\\.|'[^']*'|\"(\\.|[^\"\\])*\"")
_KEYWORD = re.compile(r"(if|then|else|do)\s+(?=\S)")
_CD = re.compile(r"cd(\s|$)")
_INTO_TESTS = re.compile(r"cd\s+\"?(\$TEST_DIR|\$\{TEST_DIR\}|/tests)/?\"?")
_CONDITION = re.compile(r"(if|elif)\s+(\[|test\b).*")
_UV_INSTALLER = re.compile(r"(curl|wget)\b.*astral\.sh/uv")
_FLAGS = frozenset({"-v", "-vv", "-q", "-s", "-x", "-l", "--no-header", "--showlocals"})
_FLAG_START = ("-r", "--tb", "--color", "--ctrf=", "--junitxml=", "--capture=", "--durations=")
_FLAG_VALUES = frozenset({"--ctrf", "--junitxml", "--tb", "--color"})
_APT_NOTHING = (["update"], ["clean"], ["autoclean"])
_UVX_VALUES = frozenset({"-p", "--python", "-w", "--with", "--from"})


class Unmapped(NamedTuple):
    """A line that is no known step."""

    text: str
    line: int


class TestScript(NamedTuple):
    """What a test script does.

    Args:
        pip: Python packages that it installs, without those that the verifier brings.
        targets: What pytest gets, relative to the folder of the tests; ``.`` for all.
        unmapped: Lines beyond installing and running pytest.
        uses_network: Whether any line would fetch something.
    """

    apt: tuple[str, ...]
    pip: tuple[str, ...]
    targets: tuple[str, ...]
    unmapped: tuple[Unmapped, ...]
    uses_network: bool

    @property
    def is_plain_pytest(self) -> bool:
        """Whether the verifier's own pytest can do all that the script does."""
        return bool(self.targets) and not self.unmapped


def read_script(text: str) -> TestScript:
    """Return what a test script does, line by line."""
    apt: list[str] = []
    pip: list[str] = []
    targets: list[str] = []
    unmapped: list[Unmapped] = []
    is_inside = False
    for number, line in _logical_lines(text):
        for whole in _steps(line):
            step = _REPORT.sub("", whole).strip()
            if _CD.match(step):
                is_inside = _INTO_TESTS.fullmatch(step) is not None
            if _is_nothing(step):
                continue
            words = [step] if re.search(r"[|&]", _unquoted(step)) else _split(step)
            if found := _installed(words):
                apt += found.apt
                pip += [name for name in found.pip if not OURS.match(name)]
                words = found.rest
                if not words:
                    continue
            tests = _pytest_targets(words, is_inside=is_inside)
            if tests is None:
                unmapped.append(Unmapped(whole, number))
            else:
                targets += tests
    return TestScript(
        tuple(dict.fromkeys(apt)),
        tuple(dict.fromkeys(pip)),
        tuple(dict.fromkeys(targets)),
        tuple(unmapped),
        uses_network=any(NETWORK.search(line) for _, line in _logical_lines(text)),
    )


class _Installed(NamedTuple):
    apt: list[str]
    pip: list[str]
    rest: list[str]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with continuations joined, without comments, each with its first number."""
    held, start = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        plain = line.strip()
        if not held:
            start = number
        if plain.startswith("#"):
            continue
        if plain.endswith("\\"):
            held += plain[:-1] + " "
            continue
        whole, held = (held + re.sub(r"\s#.*$", "", plain)).strip(), ""
        if whole:
            yield start, whole


def _steps(line: str) -> list[str]:
    parts = (part.strip() for part in re.split(r"&&|\|\||;", line))
    return [
        part if _CONDITION.fullmatch(part) else _KEYWORD.sub("", part, count=1)
        for part in parts
        if part
    ]


def _is_nothing(step: str) -> bool:
    if not step or _UV_INSTALLER.match(step):
        return True
    if "$(" in step or "`" in step or re.search(r"[<>|&\"']", _unquoted(step)):
        return False
    return bool(_CONDITION.fullmatch(step) or _NOTHING.fullmatch(step))


def _unquoted(step: str) -> str:
    """Return what the shell reads of a step; quotes in it are open."""
    return _QUOTED.sub("", step)


def _split(step: str) -> list[str]:
    try:
        words = shlex.split(step)
    except ValueError:
        return [step]
    while words[1:] and (words[0] == "sudo" or re.fullmatch(r"DEBIAN_FRONTEND=\w+", words[0])):
        words = words[1:]
    return words


def _installed(words: Sequence[str]) -> _Installed | None:
    """Return what a step installs, and the command that remains of it."""
    head = [word for word in words if not word.startswith("-")]
    if words[0] in {"apt", "apt-get"}:
        if "install" in head:
            return _Installed(head[2:], [], [])
        return _Installed([], [], []) if head[1:] in _APT_NOTHING else None
    if words[0] == "uv" and head[1:2] in (["venv"], ["init"], ["sync"], ["python"]):
        return _Installed([], [], [])
    if words[0] == "uv" and head[1:2] == ["add"]:
        return _Installed([], head[2:], [])
    if words[0] == "uvx" or (words[0] == "uv" and head[1:2] == ["run"]):
        return _uv_run(words[1:] if words[0] == "uvx" else words[2:])
    if "pip" in {word.rstrip("3") for word in words[:3]} and "install" in head:
        return _Installed([], head[head.index("install") + 1 :], [])
    return None


def _uv_run(words: Sequence[str]) -> _Installed:
    packages: list[str] = []
    position = 0
    while position < len(words) and words[position].startswith("-"):
        if words[position] in _UVX_VALUES:
            if words[position] not in {"-p", "--python"} and position + 1 < len(words):
                packages.append(words[position + 1])
            position += 1
        position += 1
    return _Installed([], packages, list(words[position:]))


def _pytest_targets(words: Sequence[str], *, is_inside: bool) -> list[str] | None:
    """Return what pytest is started on; None for another command."""
    rest = list(words)
    if rest[:1] in (["python"], ["python3"]) and rest[1:2] == ["-m"]:
        rest = rest[2:]
    if rest[:1] != ["pytest"]:
        return None
    targets = []
    words_left = iter(rest[1:])
    for word in words_left:
        if word in _FLAG_VALUES:
            next(words_left, None)
        elif word in _FLAGS or word.startswith(_FLAG_START):
            continue
        elif (target := _below_tests(word, is_inside=is_inside)) is not None:
            targets.append(target)
        else:
            return None
    return targets or (["."] if is_inside else None)


def _below_tests(word: str, *, is_inside: bool) -> str | None:
    found = re.fullmatch(r"(?:\$TEST_DIR|\$\{TEST_DIR(?::-/tests)?\}|/tests)(?:/(.*))?", word)
    if found is not None:
        return (found[1] or "").rstrip("/") or "."
    is_relative = is_inside and re.fullmatch(r"[\w.][\w./-]*", word)
    return word.removeprefix("./").rstrip("/") or "." if is_relative else None


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
    needs_python = script.is_plain_pytest
    added = with_additions(text, task.variables, script.apt, script.pip, needs_python=needs_python)
    return added, place


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


@dataclass(frozen=True, slots=True)
class Import:
    """What is imported.

    Attributes:
        folder: Task folder, or folder of task folders.
    """

    folder: Path
    pack: Path
    pack_id: str
    skip: bool = False
    replace: bool = False


def run_import(wanted: Import) -> int:
    """Write a pack and print what was imported, changed and left out."""
    result = import_terminal_bench(
        wanted.folder,
        wanted.pack,
        pack_id=wanted.pack_id,
        skip=wanted.skip,
        replace=wanted.replace,
    )
    for remark in result.remarks:
        print_line(f"note: {remark}")
    for error in result.errors:
        print_error(str(error))
    print_line(f"pack {wanted.pack_id} path={wanted.pack} tasks={len(result.tasks)}")
    return 0
