"""Harbor task folders on disk: which files count, and what they say together with task.toml.

No symbolic link is followed in what is handed to tests, oracle or steps, and none may leave the
folder. Sizes are bounded before a file is read. Nothing is skipped in silence: a folder of task
folders reports each child, and what lies beside them.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from securebench.benchmark.harbor.compose import COMPOSE_FILE, Service, read_compose
from securebench.benchmark.harbor.config import (
    MAIN,
    TASK_FILE,
    FindingKind,
    FolderFinding,
    HarborEnvironment,
    Step,
    TaskConfig,
    read_config,
    refused,
    remark,
)
from securebench.benchmark.harbor.ignore import IGNORE_FILE, IgnoreRules, PatternError
from securebench.benchmark.harbor.keys import KEYS, NO_OTHER_SERVICES
from securebench.benchmark.harbor.services import PLACE, served
from securebench.benchmark.reading.plain import PlainProblem, check_encoding
from securebench.files import UnreadableError, open_regular, open_root
from securebench.sizes import GIB, MIB

INSTRUCTION: Final = "instruction.md"
TEST_SCRIPT: Final = "test.sh"
SOLVE_SCRIPT: Final = "solve.sh"
DOCKERFILE: Final = "Dockerfile"
TRAJECTORY: Final = "trajectory.json"

NO_ARTIFACTS: Final = (
    "/proc",
    "/sys",
    "/dev",
    "/tests",
    "/solution",
    "/logs/verifier",
    "/opt/securebench",
)
"""Places that no artifact can come from."""

MAX_TEXT_BYTES: Final = MIB
"""Of task.toml, an instruction, a compose file and an ignore file each."""

MAX_FILES: Final = 100_000
"""Entries of tests, solution and environment each; as of a pack."""

MAX_TREE_BYTES: Final = 8 * GIB
"""Sum of the file sizes of each of them; as of a pack."""

MAX_DEPTH: Final = 100
"""Folders inside one another."""

MAX_FOLDERS: Final = 10_000
"""Task folders of one folder."""

MAX_NAME: Final = 200
"""Characters of a task's id."""

_CANARY: Final = re.compile(r"<!--.*canary.*-->|#.*canary.*", re.IGNORECASE)


class MainImage(StrEnum):
    """What a container of a task is made from."""

    READY = "docker_image"
    DOCKERFILE = DOCKERFILE
    COMPOSE = COMPOSE_FILE


class TreeFile(NamedTuple):
    """A regular file: path relative to its tree, and size."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StepFiles:
    """Files of one step; ``tests`` and ``solution`` are empty where it has none of its own."""

    name: str
    instruction: str
    tests: tuple[TreeFile, ...]
    solution: tuple[TreeFile, ...]
    workdir: tuple[TreeFile, ...]


@dataclass(frozen=True, slots=True)
class VerifierSource:
    """What a separate verifier starts from.

    Attributes:
        step: Name of the step, or empty for the task.
        image: Ready image, or empty.
        folder: Build folder relative to the task folder, or empty.
        environment: Limits, variables and network.
        brings_tests: Whether the image has the tests, so that none are handed to it.
        services: Those of the build folder's own compose file.
    """

    step: str
    image: str
    folder: str
    environment: HarborEnvironment
    brings_tests: bool
    services: tuple[Service, ...] = ()


@dataclass(frozen=True, slots=True)
class HarborTask:
    """What a task folder says.

    Attributes:
        id: Name of the folder.
        instruction: As the agent gets it; empty for a task with steps.
        image: What ``main`` is made from.
        services: Those of the compose file.
        environment: Files of the folder from which an image is built.
        copied: Files beside a ready image, for the working folder of ``main``.
        tests: Files for ``/tests``, without those that an ignore file takes out.
        solution: Files for ``/solution``; empty without one.
        verifiers: Those that are separate: of the task, or of its steps in their order.
    """

    id: str
    folder: Path
    config: TaskConfig
    instruction: str
    image: MainImage
    services: tuple[Service, ...]
    environment: tuple[TreeFile, ...]
    copied: tuple[TreeFile, ...]
    tests: tuple[TreeFile, ...]
    solution: tuple[TreeFile, ...]
    steps: tuple[StepFiles, ...]
    verifiers: tuple[VerifierSource, ...]


@dataclass(frozen=True, slots=True)
class FolderReading:
    """A task folder, read or refused.

    Attributes:
        task: None when a finding refuses the folder.
    """

    id: str
    folder: Path
    task: HarborTask | None
    findings: tuple[FolderFinding, ...]

    def of_kind(self, kind: FindingKind) -> list[FolderFinding]:
        """Return the findings of one kind."""
        return [each for each in self.findings if each.kind is kind]


class FoldersReading(NamedTuple):
    """A folder of task folders, or one task folder.

    Attributes:
        tasks: Sorted by id.
        beside: Names of what is no task folder: files, and folders with a dot in front.
    """

    tasks: tuple[FolderReading, ...]
    beside: tuple[str, ...]


def is_task_folder(folder: Path) -> bool:
    """Return whether a folder is a Harbor task folder."""
    return folder.is_dir() and os.path.lexists(folder / TASK_FILE)


def holds_tasks(folder: Path) -> bool:
    """Return whether a folder is a Harbor task folder, or has one as a direct child."""
    if not folder.is_dir():
        return False
    children = (child for child in folder.iterdir() if _is_named(child))
    return is_task_folder(folder) or any(map(is_task_folder, children))


def _is_named(child: Path) -> bool:
    """Return whether a child of a folder of tasks is taken for one of them."""
    return not child.name.startswith(".") and child.is_dir()


def without_canary(text: str) -> str:
    """Return an instruction as an agent gets it, without the marks of its provenance.

    Leading lines that as a whole are a comment with the word "canary" go, and then the blank lines
    at the beginning, also where there is no such comment.
    """
    lines = text.split("\n")
    start = 0
    while start < len(lines) and _CANARY.fullmatch(lines[start].strip()):
        start += 1
    while start < len(lines) and not lines[start].strip():
        start += 1
    return "\n".join(lines[start:])


def cannot_run(task: HarborTask) -> list[FolderFinding]:
    """Return what this release does not run yet of a task folder that holds."""
    config = task.config
    present: dict[str, object] = {
        "steps": task.steps,
        "verifier.collect": config.verifier.collect,
        "environment.skills_dir": config.environment.skills_dir,
    }
    found = [refused(TASK_FILE, key, KEYS[key].later) for key, value in present.items() if value]
    if task.image == MainImage.COMPOSE:
        reason = f"name the image of {MAIN} by environment.docker_image in task.toml"
        found.append(refused(PLACE, f"services.{MAIN}", reason))
    else:
        found += served(task.services).findings
    if task.image == MainImage.DOCKERFILE:
        found += _not_built(task)
    if not task.steps:
        found += _separate(task)
    if task.copied:
        reason = "this release cannot copy files beside a ready image into the container"
        found.append(refused("environment", "", reason))
    for place, asked in config.templates():
        if asked.default is None:
            reason = f"asks for the variable {asked.name}, which no run can give yet"
            found.append(refused(TASK_FILE, place, reason))
    return found


def _separate(task: HarborTask) -> Iterator[FolderFinding]:
    """Yield what stops a separate verifier, or artifacts for it."""
    for verifier in task.verifiers:
        if verifier.services:
            yield refused(f"{verifier.folder}/{COMPOSE_FILE}", "", NO_OTHER_SERVICES)
        if not verifier.image and verifier.brings_tests:
            yield from _beside_context(task, verifier.folder)
        for index, artifact in enumerate(task.config.artifacts):
            place = f"artifacts[{index}]"
            if artifact.service not in (None, MAIN):
                reason = "this release keeps artifacts of main only"
                yield refused(TASK_FILE, f"{place}.service", reason)
            source = posixpath.normpath(artifact.source)
            if source == "/" or any(is_within(source, each) for each in NO_ARTIFACTS):
                yield refused(TASK_FILE, f"{place}.source", "is no place of the agent's files")


def _beside_context(task: HarborTask, name: str) -> Iterator[FolderFinding]:
    """Yield files that an image is built from and that no upload carries."""
    known = {file.path for file in task.tests}
    folder = task.folder / name
    if not (folder / DOCKERFILE).is_file():
        yield refused(name, "", "an image of a separate verifier is built from a Dockerfile")
    for parent, _, files in os.walk(folder):
        for file in sorted(files):
            place = Path(parent, file).relative_to(folder).as_posix()
            if file != IGNORE_FILE and place not in known:
                reason = f"{IGNORE_FILE} takes out a file from which the verifier's image is built"
                yield refused(f"{name}/{place}", "", reason)


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is a folder or lies below it."""
    return path == folder or path.startswith(f"{folder}/")


def flags_of_run(task: HarborTask) -> list[str]:
    """Return the flags without which ``securebench run`` refuses a task folder."""
    config = task.config
    modes = {config.agent_network().mode, config.verifier_network().mode}
    return [
        *(["--network none"] if modes != {"no-network"} else []),
        *(["--registry PREFIX"] if built_folders(task) else []),
    ]


def built_folders(task: HarborTask) -> dict[str, tuple[TreeFile, ...]]:
    """Return the folders from which images of a task are built, with what they hold."""
    found: dict[str, tuple[TreeFile, ...]] = {}
    if task.image == MainImage.DOCKERFILE:
        found["environment"] = task.environment
    for verifier in task.verifiers:
        if verifier.brings_tests and not verifier.image:
            found[verifier.folder] = task.tests
    return found


def _not_built(task: HarborTask) -> Iterator[FolderFinding]:
    """Yield the links of a build folder: an upload has none, so the image has no stable name."""
    folder = task.folder / "environment"
    for parent, folders, files in os.walk(folder):
        for name in sorted((*folders, *files)):
            path = Path(parent, name)
            if path.is_symlink():
                place = path.relative_to(task.folder).as_posix()
                yield refused(place, "", "is a symbolic link; put the file itself there")


def read_folders(folder: Path) -> FoldersReading:
    """Return every task folder of a folder, or the folder itself when it is one."""
    if is_task_folder(folder):
        return FoldersReading((read_folder(folder),), ())
    tasks: list[FolderReading] = []
    beside: list[str] = []
    for child in sorted(folder.iterdir()):
        name = child.name
        if not _is_named(child):
            beside.append(name)
        elif len(tasks) >= MAX_FOLDERS:
            finding = refused("", "", f"comes after {MAX_FOLDERS} others, the most of one pack")
            tasks.append(FolderReading(name, child, None, (finding,)))
        elif child.is_symlink():
            finding = refused("", "", "is a symbolic link; put the folder itself there")
            tasks.append(FolderReading(name, child, None, (finding,)))
        else:
            tasks.append(read_folder(child))
    return FoldersReading(tuple(_with_namesakes(tasks)), tuple(beside))


def _with_namesakes(tasks: Sequence[FolderReading]) -> Iterator[FolderReading]:
    """Yield the readings; one whose published name an earlier one has gets a remark."""
    first: dict[str, str] = {}
    for each in tasks:
        package = None if each.task is None else each.task.config.task
        owner = each.id if package is None else first.setdefault(package.name, each.id)
        if owner == each.id:
            yield each
            continue
        reason = f"also the name of folder {owner!r}; results are told apart by the folder"
        note = remark(TASK_FILE, "task.name", reason)
        yield FolderReading(each.id, each.folder, each.task, (*each.findings, note))


def read_folder(folder: Path) -> FolderReading:
    """Return what a task folder says, with all that is wrong with it."""
    reader = _Reader(folder)
    task = reader.task()
    found = tuple(dict.fromkeys(reader.findings))
    if any(each.kind is FindingKind.REFUSED for each in found):
        task = None
    return FolderReading(reader.id, folder, task, found)


class _Reader:
    """Reads one folder and collects the findings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id = folder.name or folder.resolve().name
        self.findings: list[FolderFinding] = []
        self.has_carriage_returns = False
        """Whether the text that was read last has them."""

    def refuse(self, file: str, reason: str, key: str = "", line: int | None = None) -> None:
        self.findings.append(refused(file, key, reason, line))

    def task(self) -> HarborTask | None:
        if not self.id.isprintable() or len(self.id) > MAX_NAME or not self.id.strip():
            self.refuse("", f"its name, the task's id, must be printable, up to {MAX_NAME} long")
        if not os.path.lexists(self.folder / TASK_FILE):
            self.refuse(TASK_FILE, "is missing, so this is no task folder")
            return None
        text = self.text(TASK_FILE)
        if text is None:
            return None
        config, findings = read_config(text)
        self.findings += findings
        # The files are examined all the same, so that a folder is mended in one go.
        return self.files(TaskConfig() if config is None else config, is_known=config is not None)

    def files(self, config: TaskConfig, *, is_known: bool) -> HarborTask:
        has_steps = bool(config.steps)
        image = self.image(config, is_known=is_known)
        environment = self.tree("environment", keeps_links=True, has_rules=False)
        services = self.services(f"environment/{COMPOSE_FILE}", image)
        is_copied = image is MainImage.READY and not any(
            file.path in {DOCKERFILE, COMPOSE_FILE} for file in environment
        )
        tests, solution = self.tree("tests"), self.tree("solution")
        steps = tuple(self.step(step) for step in config.steps or ())
        verifiers = tuple(self.verifiers(config))
        if is_known and not has_steps:
            self.check_script(tests, (), verifiers, "")
        for step in steps:
            self.check_script(tests, step.tests, verifiers, step.name)
        self.check_root(config, is_known=is_known)
        return HarborTask(
            id=self.id,
            folder=self.folder,
            config=config,
            instruction="" if has_steps or not is_known else self.instruction(INSTRUCTION),
            image=image,
            services=services,
            environment=environment,
            copied=environment if is_copied else (),
            tests=tests,
            solution=solution,
            steps=steps,
            verifiers=verifiers,
        )

    def text(self, name: str) -> str | None:
        """Return a text with LF as line ends, as Python reads it; None when it cannot be read."""
        try:
            with open_root(self.folder) as root, open_regular(root, name) as file:
                data = file.read(MAX_TEXT_BYTES + 1)
        except UnreadableError as error:
            self.refuse(name, str(error).removeprefix(f"{name} "))
            return None
        except OSError as error:
            self.refuse(name, f"cannot be read: {error.strerror or 'unknown reason'}")
            return None
        if len(data) > MAX_TEXT_BYTES:
            self.refuse(name, f"has more than {MAX_TEXT_BYTES} bytes")
            return None
        try:
            check_encoding(data)
            text = data.decode("utf-8")
        except PlainProblem as problem:
            self.refuse(name, problem.reason, line=problem.line)
            return None
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            self.refuse(name, "not UTF-8 text; save the file as UTF-8", line=line)
            return None
        self.has_carriage_returns = "\r" in text
        return text.replace("\r\n", "\n").replace("\r", "\n")

    def instruction(self, name: str) -> str:
        text = self.text(name)
        if text is None:
            return ""
        if self.has_carriage_returns:
            reason = "its line ends become LF, as Harbor reads them"
            self.findings.append(remark(name, "", reason))
        found = without_canary(text)
        if not found.strip():
            self.refuse(name, "holds no instruction")
        if "\0" in found:
            self.refuse(name, "holds a NUL, which no command line takes")
        return found

    def image(self, config: TaskConfig, *, is_known: bool) -> MainImage:
        if config.environment.docker_image:
            return MainImage.READY
        for source in (MainImage.DOCKERFILE, MainImage.COMPOSE):
            if (self.folder / "environment" / source.value).is_file():
                return source
        if is_known:
            reason = f"has neither {DOCKERFILE} nor {COMPOSE_FILE}, and no docker_image is named"
            self.refuse("environment", reason)
        return MainImage.DOCKERFILE

    def services(self, name: str, image: MainImage) -> tuple[Service, ...]:
        if not os.path.lexists(self.folder / name):
            return ()
        text = self.text(name)
        if text is None:
            return ()
        services, findings = read_compose(text, name)
        self.findings += findings
        if image is MainImage.COMPOSE and services:
            own = [each for each in services if each.name == MAIN]
            if not own or not (own[0].image or own[0].build):
                self.refuse(name, f"must have an image or a build for {MAIN}", f"services.{MAIN}")
        for each in services:
            if each.name != MAIN and not each.image and not each.build:
                self.refuse(name, "must have an image or a build", f"services.{each.name}")
        return services

    def tree(
        self, name: str, *, keeps_links: bool = False, has_rules: bool = True
    ) -> tuple[TreeFile, ...]:
        """Return the files below a folder in the order of their paths; none when it is absent.

        Args:
            name: Relative to the task folder.
            keeps_links: Links inside the task folder are left to the builder of the image.
            has_rules: Whether ignore files take files out.
        """
        files: list[TreeFile] = []
        size = count = 0
        for entry in _Walk(self, name, keeps_links, has_rules).entries():
            count, size = count + 1, size + entry.size_bytes
            files.append(entry)
            if count > MAX_FILES or size > MAX_TREE_BYTES:
                self.refuse(name, f"has more than {MAX_FILES} files or {MAX_TREE_BYTES} bytes")
                return ()
        return tuple(sorted(files))

    def step(self, step: Step) -> StepFiles:
        base = f"steps/{step.name}"
        if not os.path.lexists(self.folder / base):
            self.refuse(base, "is missing; the folder of a step has its instruction")
            return StepFiles(step.name, "", (), (), ())
        if os.path.lexists(self.folder / base / TRAJECTORY):
            self.refuse(f"{base}/{TRAJECTORY}", _FOREIGN_SESSION)
        return StepFiles(
            name=step.name,
            instruction=self.instruction(f"{base}/{INSTRUCTION}"),
            tests=self.tree(f"{base}/tests"),
            solution=self.tree(f"{base}/solution"),
            workdir=self.tree(f"{base}/workdir", has_rules=False),
        )

    def verifiers(self, config: TaskConfig) -> Iterator[VerifierSource]:
        steps: Sequence[Step | None] = config.steps or (None,)
        for step in steps:
            environment = config.verifier_environment(step)
            if environment is not None:
                yield self.verifier(config, step, environment)

    def verifier(
        self, config: TaskConfig, step: Step | None, environment: HarborEnvironment
    ) -> VerifierSource:
        """Return the image of a separate verifier: the first that there is."""
        name = "" if step is None else step.name
        places = [(config.verifier.environment, "tests")]
        if step is not None:
            places.insert(0, (step.verifier.environment, f"steps/{step.name}/tests"))
        for own, folder in places:
            if own is not None and own.docker_image:
                image = own.docker_image
                return VerifierSource(name, image, "", environment, brings_tests=True)
            found = [
                source
                for source in (MainImage.DOCKERFILE, MainImage.COMPOSE)
                if (self.folder / folder / source.value).is_file()
            ]
            if found:
                services = self.services(f"{folder}/{COMPOSE_FILE}", found[0])
                return VerifierSource(
                    name, "", folder, environment, brings_tests=True, services=services
                )
        image = config.environment.docker_image or ""
        folder = "" if image else "environment"
        return VerifierSource(name, image, folder, environment, brings_tests=False)

    def check_script(
        self,
        tests: Sequence[TreeFile],
        own: Sequence[TreeFile],
        verifiers: Sequence[VerifierSource],
        step: str,
    ) -> None:
        """Refuse a task or a step without a test script, unless its verifier brings the tests."""
        if any(each.brings_tests for each in verifiers if each.step == step):
            return
        if any(file.path == TEST_SCRIPT for file in (*own, *tests)):
            return
        places = [f"steps/{step}/tests"] if step else []
        for folder in (*places, "tests"):
            if (self.folder / folder / TEST_SCRIPT).is_file():
                self.refuse(f"{folder}/{TEST_SCRIPT}", f"{IGNORE_FILE} takes it out")
                return
        reason = "is missing, and no image of a separate verifier brings it"
        self.refuse(f"{(*places, 'tests')[0]}/{TEST_SCRIPT}", reason)

    def check_root(self, config: TaskConfig, *, is_known: bool) -> None:
        """Note what lies in the folder and has no effect, or another one than it seems."""
        if os.path.lexists(self.folder / TRAJECTORY):
            self.refuse(TRAJECTORY, _FOREIGN_SESSION)
        if not is_known:
            return
        named = {step.name for step in config.steps or ()}
        if named and (self.folder / INSTRUCTION).exists():
            self.findings.append(remark(INSTRUCTION, "", "no effect: each step has its own"))
        for place in (IGNORE_FILE, f"environment/{IGNORE_FILE}"):
            if os.path.lexists(self.folder / place):
                reason = "no effect here, only in tests and solution"
                self.findings.append(remark(place, "", reason))
        if (self.folder / "steps").is_dir() and not (self.folder / "steps").is_symlink():
            for name in sorted({each.name for each in (self.folder / "steps").iterdir()} - named):
                reason = f"no effect: {TASK_FILE} names no such step"
                self.findings.append(remark(f"steps/{name}", "", reason))


_FOREIGN_SESSION: Final = "no agent of SecureBench continues a foreign session"


class _Walk:
    """Lists the regular files below a folder and refuses what is none."""

    def __init__(self, reader: _Reader, name: str, keeps_links: bool, has_rules: bool) -> None:  # noqa: FBT001 - one caller
        self._reader = reader
        self._root = reader.folder.resolve()
        self._name = name
        self._keeps_links = keeps_links
        self._has_rules = has_rules
        self._rules: list[tuple[str, IgnoreRules]] = []

    def entries(self) -> Iterator[TreeFile]:
        top = self._reader.folder
        for name in self._name.split("/"):
            top /= name
            if not os.path.lexists(top):
                return
            if top.is_symlink() or not top.is_dir():
                place = top.relative_to(self._reader.folder).as_posix()
                self._reader.refuse(place, "must be a folder, no link and no file")
                return
        yield from self._below(top, "")

    def _below(self, folder: Path, prefix: str) -> Iterator[TreeFile]:
        if prefix.count("/") > MAX_DEPTH:
            self._reader.refuse(self._name, f"has more than {MAX_DEPTH} folders inside one another")
            return
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            self._reader.refuse(self._place(prefix), f"cannot be read: {error.strerror}")
            return
        has_rules = self._has_rules and self._read_rules(entries, prefix)
        for entry in entries:
            path = f"{prefix}{entry.name}"
            yield from self._entry(entry, path)
        if has_rules:
            self._rules.pop()

    def _entry(self, entry: os.DirEntry[str], path: str) -> Iterator[TreeFile]:
        is_folder = entry.is_dir(follow_symlinks=False)
        if self._has_rules and (
            entry.name == IGNORE_FILE or self._is_left_out(path, is_folder=is_folder)
        ):
            return
        if is_folder:
            yield from self._below(Path(entry.path), f"{path}/")
            return
        mode = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(mode.st_mode):
            yield TreeFile(path, mode.st_size)
        elif not stat.S_ISLNK(mode.st_mode):
            self._reader.refuse(self._place(path), "is neither file nor folder")
        elif not self._keeps_links:
            self._reader.refuse(self._place(path), "is a symbolic link; put the file there")
        elif _leads_to_itself(entry):
            self._reader.refuse(self._place(path), "is a link that leads to itself")
        elif not Path(entry.path).resolve().is_relative_to(self._root):
            self._reader.refuse(self._place(path), "is a link that leaves the task folder")

    def _read_rules(self, entries: Sequence[os.DirEntry[str]], prefix: str) -> bool:
        if all(entry.name != IGNORE_FILE for entry in entries):
            return False
        place = self._place(f"{prefix}{IGNORE_FILE}")
        text = self._reader.text(place)
        if text is None:
            return False
        try:
            self._rules.append((prefix, IgnoreRules(text.splitlines())))
        except PatternError as error:
            self._reader.refuse(place, error.reason, line=error.line)
            return False
        return True

    def _is_left_out(self, path: str, *, is_folder: bool) -> bool:
        is_out = False
        for prefix, rules in self._rules:
            verdict = rules.verdict(path.removeprefix(prefix), is_folder=is_folder)
            is_out = is_out if verdict is None else verdict
        return is_out

    def _place(self, path: str) -> str:
        return f"{self._name}/{path}".rstrip("/")


def _leads_to_itself(link: os.DirEntry[str]) -> bool:
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False
