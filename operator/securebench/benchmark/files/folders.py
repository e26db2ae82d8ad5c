"""A folder of Harbor task folders as a pack, or one task folder.

A folder without a task file that holds task folders is a pack. Each task folder is one task, named
like the folder. A manifest may be there, for id and version; without one the id is the name of the
pack's folder and the version 1. Uploads carry the files that count, and the digest covers the same:
no ignored file, nothing beside the tasks, no mode.
"""

from __future__ import annotations

import json
import os
import posixpath
import shlex
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from math import ceil, isfinite
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from securebench.benchmark.families.harbor_task import (
    FAMILY,
    HARBOR,
    HOSTS,
    INSTRUCTION,
    NETWORKS,
    SOLUTION,
    TASK_DIGEST,
    TASK_FOLDER,
    TESTS,
    VERIFIER,
)
from securebench.benchmark.files.bundle import Content
from securebench.benchmark.harbor.config import (
    TASK_FILE,
    FindingKind,
    HarborEnvironment,
    Healthcheck,
    resolved_variables,
)
from securebench.benchmark.harbor.folder import (
    INSTRUCTION as INSTRUCTION_FILE,
)
from securebench.benchmark.harbor.folder import (
    FolderReading,
    HarborTask,
    built_folders,
    cannot_run,
    holds_tasks,
    is_task_folder,
    read_folders,
)
from securebench.benchmark.harbor.ignore import IgnoreRules, PatternError
from securebench.benchmark.harbor.services import served
from securebench.benchmark.pack.lane_plan import TASK_FILE as PAYLOAD_FILE
from securebench.benchmark.pack.lane_plan import (
    lane_plan,
    solution_files,
)
from securebench.benchmark.pack.paths import environment_problems
from securebench.benchmark.pack.task import CompiledTask, SecureBenchTask, task_of
from securebench.benchmark.reading.plain import PlainProblem, decoded, parse_yaml
from securebench.benchmark.reading.rows import (
    AssetRoots,
    BenchmarkManifest,
    BenchmarkRow,
    parse_manifest,
)
from securebench.digests import PREFIX, listing_digest
from securebench.errors import ConfigErrors, PackError
from securebench.files import UnreadableError, file_sha256, open_regular, open_root
from securebench.json_values import as_number, object_in
from securebench.names import kubernetes_name

NO_IMAGE: Final = (
    "the task or its verifier has a Dockerfile and no ready image: build it with `securebench pack"
    " build-images DIR --registry PREFIX`, and give the run the same --registry"
)

IMAGES: Final = "images"
"""Key of the manifest: where the images are that ``pack build-images`` names."""

THRESHOLD: Final = "threshold"
"""Key of the manifest: the smallest score that passes."""

_KEYS: Final = frozenset({"id", "version", IMAGES, THRESHOLD})

WHOLE_PACK: Final = "."
"""Asset root of a pack whose files lie in the folders of its tasks."""

ENVIRONMENT: Final = "environment"
README: Final = "README.md"
GIT_IGNORE: Final = ".gitignore"

_LEFT_OUT: Final = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")
"""What Harbor's digest of a task leaves out where the task has no .gitignore."""


class FolderOptions(NamedTuple):
    """What a user says of task folders beside what they say themselves.

    Attributes:
        skips_invalid: Whether folders with errors are left out, unless all have some.
        registry: Where the images of Dockerfiles are.
    """

    skips_invalid: bool = False
    registry: str = ""


EVERY_FOLDER: Final = FolderOptions()


class FolderPack(NamedTuple):
    """A pack of task folders.

    Attributes:
        tasks: Those that hold, sorted by id.
        errors: What is wrong with the others.
        files: Every file of these tasks that counts, by its path in an upload.
    """

    manifest: BenchmarkManifest
    tasks: tuple[CompiledTask, ...]
    errors: tuple[PackError, ...]
    files: Mapping[str, Content]

    @property
    def digest(self) -> str:
        """Digest that binds results to the pack."""
        return listing_digest(
            (path.encode(), _sha256(self.files[path])) for path in sorted(self.files)
        )


def is_folder_pack(manifest: Path, tasks: Path) -> bool:
    """Return whether the tasks of a pack are folders.

    Args:
        manifest: Where its manifest is or would be.
        tasks: Where its task file would be.
    """
    return not os.path.lexists(tasks) and holds_tasks(manifest.parent)


def read_folder_pack(
    manifest: Path,
    *,
    limit: int | None = None,
    task_file: str = PAYLOAD_FILE,
    registry: str = "",
    shown: str | None = None,
) -> FolderPack:
    """Return a pack of task folders with everything that stops a run of it.

    Args:
        manifest: Where its manifest is or would be; the folders are beside it.
        limit: Task folders behind this many do not count; None takes all.
        task_file: Workspace path of the public payload.
        registry: Where the images of Dockerfiles are, before what the manifest says.
        shown: Name of the manifest in errors and metadata; default: the path as given.

    Raises:
        ConfigErrors: The manifest does not hold.
    """
    name = str(manifest) if shown is None else shown
    found = _manifest(manifest, name, registry)
    loaded, images = found.manifest, found.images
    root = manifest.parent
    base = root if is_task_folder(root) else None
    readings = read_folders(root).tasks[:limit]
    files: dict[str, Content] = {manifest.name: found.content}
    tasks: list[CompiledTask] = []
    errors: list[PackError] = []
    for reading in readings:
        refused = list(refusals(reading))
        errors += refused
        if refused or reading.task is None:
            continue
        image = task_image(reading.task, images)
        folder = "" if base is not None else reading.id
        missing = not image or any(
            not built_image(reading.task, name, images) for name in built_folders(reading.task)
        )
        row = _row(reading.task, (image, images), folder, found.threshold)
        task = task_of(row, loaded)
        problems = [
            PackError(each, path=str(reading.folder))
            for each in ([NO_IMAGE] if missing else _problems(task, task_file))
        ]
        if problems:
            errors += problems
            continue
        tasks.append(CompiledTask(row, task))
        files |= {f"{reading.id}/{name}": path for name, path in _files(reading.task)}
    return FolderPack(loaded, tuple(tasks), tuple(errors), files)


def place_folders(pack: FolderPack, target: Path) -> None:
    """Move the files of a pack to a new folder, as an upload has them. Blocks."""
    target.mkdir()
    for name, content in pack.files.items():
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            place.write_bytes(content)
        else:
            content.rename(place)


def task_image(task: HarborTask, registry: str) -> str:
    """Return the image of a task: the ready one, else that of its build folder.

    Args:
        task: What its folder says.
        registry: Prefix of the images that are built; without one only ready images have a name.

    Returns:
        A reference, or empty. A built image is named by the content of its build folder.
    """
    ready = task.config.environment.docker_image
    return ready or built_image(task, ENVIRONMENT, registry)


def built_image(task: HarborTask, name: str, registry: str) -> str:
    """Return the image of a build folder of a task; empty without a registry."""
    files = built_folders(task).get(name)
    if files is None or not registry:
        return ""
    folder = task.folder / name
    content = listing_digest(
        (file.path.encode(), file_sha256(folder / file.path)) for file in files
    )
    tag = content.removeprefix(PREFIX)[:_TAG_CHARACTERS]
    repository = task.id if name == ENVIRONMENT else f"{task.id}-{name}"
    return f"{registry.rstrip('/')}/{kubernetes_name(repository)}:{tag}"


_TAG_CHARACTERS: Final = 24
"""Of a digest; two build folders of one task never have the same by chance."""


class _FolderManifest(NamedTuple):
    """What the manifest of a pack of folders says.

    Attributes:
        manifest: Id and version.
        images: Prefix of the images that are built, or empty.
        threshold: Smallest score that passes, or None.
        content: Of the file.
    """

    manifest: BenchmarkManifest
    images: str
    threshold: float | None
    content: bytes


def _manifest(path: Path, shown: str, registry: str) -> _FolderManifest:
    """Return the manifest of a pack.

    A missing one is made from the folder's name; another registry is written into it.
    """
    if os.path.lexists(path):
        try:
            with open_root(path.parent) as folder, open_regular(folder, path.name) as file:
                content = file.read()
            text = decoded(content)
        except UnreadableError as error:
            reason = str(error).removeprefix(f"{path.name} ")
            raise ConfigErrors([PackError(reason, path=shown)]) from None
        except OSError as error:
            reason = f"cannot be read: {error.strerror or 'unknown reason'}"
            raise ConfigErrors([PackError(reason, path=shown)]) from None
        except PlainProblem as problem:
            raise ConfigErrors([PackError(problem.reason, path=shown, line=problem.line)]) from None
    else:
        content = manifest_of(path.parent.resolve().name)
        text = content.decode()
    found = parse_manifest(text, path=shown)
    unused = [line for key, line in found.lines.items() if key[0] not in _KEYS]
    if unused:
        keys = f"id, version, {IMAGES} and {THRESHOLD}"
        reason = f"the tasks of this pack are folders; its manifest has {keys} only"
        raise ConfigErrors([PackError(reason, path=shown, line=min(unused))])
    values = object_in(parse_yaml(text).value)
    images, threshold = values.get(IMAGES, ""), as_number(values.get(THRESHOLD))
    if not isinstance(images, str):
        reason = f"manifest {IMAGES} must be the prefix of image names"
        raise ConfigErrors([PackError(reason, path=shown, line=found.line_of(IMAGES))])
    if THRESHOLD in values and threshold is None:
        reason = f"manifest {THRESHOLD} must be a number: the smallest score that passes"
        raise ConfigErrors([PackError(reason, path=shown, line=found.line_of(THRESHOLD))])
    if registry and registry != images:
        content = manifest_of(found.id, found.version, registry, threshold)
    return _FolderManifest(_with_roots(found), registry or images, threshold, content)


def _with_roots(found: BenchmarkManifest) -> BenchmarkManifest:
    roots = AssetRoots(WHOLE_PACK, WHOLE_PACK)
    return BenchmarkManifest(found.id, found.version, asset_roots=roots, path=found.path)


def manifest_of(
    name: str, version: int = 1, registry: str = "", threshold: float | None = None
) -> bytes:
    """Return a manifest of a pack of folders.

    Args:
        name: Id, or name of the pack's folder.
        version: Version.
        registry: Where its images are, or empty.
        threshold: Smallest score that passes, or None.
    """
    shown = "".join(each if each.isprintable() else "-" for each in name).strip()
    more = {
        **({IMAGES: registry} if registry else {}),
        **({} if threshold is None else {THRESHOLD: threshold}),
    }
    value = {"id": shown or "harbor-tasks", "version": version, **more}
    return f"{json.dumps(value)}\n".encode()


def refusals(reading: FolderReading) -> Iterator[PackError]:
    """Yield why a task folder does not hold, or cannot run."""
    found = reading.of_kind(FindingKind.REFUSED)
    if reading.task is not None:
        found += cannot_run(reading.task)
    for each in found:
        path = str(reading.folder / each.file) if each.file else str(reading.folder)
        yield PackError(str(each), path=path, line=each.line)


def _problems(task: SecureBenchTask, task_file: str) -> Iterator[str]:
    yield from (each.reason for each in environment_problems(task))
    try:
        lane_plan(task, task_file)
        solution_files(task)
    except PackError as error:
        yield error.reason


def _files(task: HarborTask) -> Iterator[tuple[str, Path]]:
    for name in (TASK_FILE, INSTRUCTION_FILE, README, GIT_IGNORE):
        if (task.folder / name).is_file() and not (task.folder / name).is_symlink():
            yield name, task.folder / name
    trees = ((ENVIRONMENT, task.environment), (TESTS, task.tests), (SOLUTION, task.solution))
    for folder, files in trees:
        for file in files:
            yield f"{folder}/{file.path}", task.folder / folder / file.path


def task_digest(task: HarborTask) -> str:
    """Return the digest by which Harbor knows a published task.

    It is empty where the task's .gitignore has a line that is no pattern.
    """
    files = dict(_files(task))
    ignored = files.pop(GIT_IGNORE, None)
    lines = _LEFT_OUT if ignored is None else ignored.read_text("utf-8", "replace").splitlines()
    try:
        rules = IgnoreRules(lines)
    except PatternError:
        return ""
    kept = sorted(name for name in files if not _is_left_out(name, rules))
    return listing_digest((name.encode(), file_sha256(files[name])) for name in kept)


def _is_left_out(name: str, rules: IgnoreRules) -> bool:
    above = PurePosixPath(name).parents[:-1]
    verdicts = [rules.verdict(str(folder), is_folder=True) for folder in reversed(above)]
    return True in verdicts or rules.verdict(name, is_folder=False) is True


def _row(
    task: HarborTask, images: tuple[str, str], folder: str, threshold: float | None = None
) -> BenchmarkRow:
    image, registry = images
    config = task.config
    package = config.task
    networks = {"agent": config.agent_network(), "verifier": config.verifier_network()}
    facts = {
        "name": None if package is None else package.name,
        TASK_FOLDER: folder,
        NETWORKS: {name: network.mode for name, network in networks.items()},
        HOSTS: list(networks["agent"].hosts),
        TASK_DIGEST: task_digest(task),
    }
    solution = {
        "files": [{"path": file.path} for file in task.solution],
        "env": resolved_variables(config.solution.env),
    }
    return BenchmarkRow(
        id=task.id,
        family=FAMILY.name,
        input={INSTRUCTION: task.instruction},
        eval={
            TESTS: {"files": [{"path": file.path} for file in task.tests]},
            VERIFIER: {
                **_verifier(task, registry),
                **({} if threshold is None else {THRESHOLD: threshold}),
            },
            **({SOLUTION: solution} if task.solution else {}),
        },
        environment={**_agent_environment(task), "image": image},
        metadata={**_plain(config.metadata), HARBOR: facts},
    )


def _agent_environment(task: HarborTask) -> dict[str, object]:
    """Return what the agent works in; what the task does not say is absent."""
    config = task.config
    found = {
        **_container(task),
        "timeout_seconds": config.agent.timeout_sec,
        "user": config.agent.user,
        **_health_check(config.environment.healthcheck),
    }
    return {name: value for name, value in found.items() if value not in (None, {}, "")}


_CHECK: Final = """\
failures=0
until timeout {timeout} bash -c {command} >&2; do
  if [ "$SECONDS" -lt {grace} ]; then sleep {early}; continue; fi
  failures=$((failures + 1))
  if [ "$failures" -ge {retries} ]; then exit 1; fi
  sleep {interval}
done
"""
"""Failures in the first seconds do not count, and later ones count in a row."""

_CHECK_MARGIN_SECONDS: Final = 10.0
"""Seconds of the check beyond those that its tries and pauses may take."""


def _health_check(check: Healthcheck | None) -> dict[str, object]:
    """Return the command that has to succeed before the agent begins, and its time limit."""
    if check is None:
        return {}
    script = _CHECK.format(
        timeout=max(1, int(check.timeout_sec)),
        command=shlex.quote(check.command),
        grace=ceil(check.start_period_sec),
        early=check.start_interval_sec,
        retries=check.retries,
        interval=check.interval_sec,
    )
    tries = (check.timeout_sec + check.interval_sec) * check.retries
    early = check.timeout_sec + check.start_interval_sec
    seconds = check.start_period_sec + early + tries + _CHECK_MARGIN_SECONDS
    return {"check": ["bash", "-c", script], "check_seconds": seconds}


def _verifier(task: HarborTask, registry: str) -> dict[str, object]:
    """Return what the test script gets.

    A shared verifier's container is like the agent's. Its own variables alone are here: those of
    the environment are no secrets. A separate one has a container of its own.
    """
    config = task.config
    own = resolved_variables(config.verifier.env)
    environment = {"image": "", **_container(task), "env": own, "user": config.verifier.user}
    more: dict[str, object] = {}
    for separate in task.verifiers:
        variables = {**resolved_variables(separate.environment.env), **own}
        services = None if separate.brings_tests else environment["services"]
        image = separate.image or built_image(task, separate.folder, registry)
        image = image if separate.brings_tests else ""
        environment |= _limits(separate.environment)
        environment |= {"env": variables, "services": services}
        more = {
            "image": {"path": image},
            "artifacts": _artifacts(task),
            "brings_tests": separate.brings_tests,
        }
    return {
        "environment": {key: value for key, value in environment.items() if value is not None},
        "timeout_seconds": config.verifier.timeout_sec,
        **more,
    }


IMPLICIT_ARTIFACT: Final = "/logs/artifacts"
"""Harbor keeps it of every task, unless the task says how."""


def _artifacts(task: HarborTask) -> list[dict[str, object]]:
    artifacts: list[dict[str, object]] = [
        {"source": each.source, "exclude": [{"path": pattern} for pattern in each.exclude]}
        for each in task.config.artifacts
    ]
    named = {posixpath.normpath(each.source) for each in task.config.artifacts}
    implicit: list[dict[str, object]] = [{"source": IMPLICIT_ARTIFACT, "exclude": []}]
    return artifacts if IMPLICIT_ARTIFACT in named else [*implicit, *artifacts]


def _container(task: HarborTask) -> dict[str, object]:
    environment = task.config.environment
    return {
        **_limits(environment),
        "env": resolved_variables(environment.env),
        "services": list(served(task.services).services) or None,
    }


def _limits(environment: HarborEnvironment) -> dict[str, object]:
    return {
        "workdir": environment.workdir,
        "cpus": environment.cpus,
        "memory_mb": environment.memory_mb,
        "storage_mb": environment.storage_mb,
    }


def _plain(value: Mapping[str, object]) -> dict[str, object]:
    return {name: _plain_value(each) for name, each in value.items()}


def _plain_value(value: object) -> object:
    """Return a value of TOML in a form that JSON has; times and infinities become text."""
    if isinstance(value, Mapping):
        return _plain(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain_value(each) for each in value]
    if isinstance(value, str | int | bool) or (isinstance(value, float) and isfinite(value)):
        return value
    return str(value)


def _sha256(content: Content) -> str:
    return sha256(content).hexdigest() if isinstance(content, bytes) else file_sha256(content)
