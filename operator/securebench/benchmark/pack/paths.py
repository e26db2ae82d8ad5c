"""Workspace paths and environment keys: what may be written for whom and where; names of images.

Source: contract 5.1, 9.4, 9.5, 10, 12.1.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.reading.shape import Shape
from securebench.benchmark.resources import Component, ResourceError
from securebench.errors import PackError
from securebench.json_values import SECONDS, described, is_text
from securebench.names import REPOSITORY_PATTERN, TAG_PATTERN
from securebench.protocol.messages import FRAMEWORK_FOLDER
from securebench.text import did_you_mean_or_known

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from securebench.benchmark.pack.task import SecureBenchTask

PUBLIC_ROOT = f"{FRAMEWORK_FOLDER}/public"
EVALUATION_ROOT = f"{FRAMEWORK_FOLDER}/evaluation_inputs"
EVALUATOR_ROOT = f"{FRAMEWORK_FOLDER}/evaluator"

DENIED = (
    "ground_truth",
    "scorer",
    "eval",
    "task/hidden.json",
    "task/evaluation_inputs.json",
    "input/hidden.json",
    "output/score.json",
)
"""Refused for every component, with everything below."""

FRAMEWORK_ROOTS = {
    Component.AGENT: (PUBLIC_ROOT,),
    Component.TEST_SANDBOX: (PUBLIC_ROOT, EVALUATION_ROOT),
    Component.EVALUATOR: (EVALUATOR_ROOT,),
}
RESERVED_ROOTS = {
    Component.AGENT: (EVALUATION_ROOT, EVALUATOR_ROOT),
    Component.TEST_SANDBOX: (EVALUATION_ROOT, EVALUATOR_ROOT),
    Component.EVALUATOR: (),
}


class PathError(PackError, ValueError):
    """A path that no pack may use."""


def safe_relative_path(path: object, what: str) -> str:
    """Return a path in its normal form (no ``.`` components, no doubled slashes).

    Args:
        path: What the author wrote.
        what: Name of the path in messages.

    Raises:
        PathError: Not a non-empty string, absolute, with a backslash, a NUL or ``..``, or ``.``.
    """
    if not isinstance(path, str) or not path.strip():
        raise PathError(f"{what} must be a non-empty relative path")
    if "\\" in path or "\0" in path or not is_unicode(path):
        raise PathError(f"{what} must not contain a backslash, a NUL or half a character")
    pure = PurePosixPath(path)
    if pure.is_absolute():
        raise PathError(f"{what} must be relative")
    if ".." in pure.parts:
        raise PathError(f"{what} must not contain '..'")
    if not pure.parts:
        raise PathError(f"{what} must not be '.'")
    return str(pure)


def is_at_or_below(path: str, root: str) -> bool:
    """Return whether a normal path is the root itself or lies below it."""
    return path == root or path.startswith(f"{root}/")


def framework_path(path: str, component: str) -> str:
    """Return a path at which the framework places a file.

    Raises:
        PathError: Denied, or outside the component's roots.
    """
    target = _target(component)
    normal = _permitted(path, "path")
    if not any(is_at_or_below(normal, root) for root in FRAMEWORK_ROOTS[target]):
        raise PathError(f"path {normal!r} is outside allowed roots of {target}")
    return normal


def author_path(path: object, component: str, what: str = "mount") -> str:
    """Return a path that the author or the tester chose: mount, task_file, artifact_path.

    Raises:
        PathError: Unsafe, denied, or below a root that is reserved for trusted files.
    """
    target = _target(component)
    normal = _permitted(path, what)
    for root in RESERVED_ROOTS[target]:
        if is_at_or_below(normal, root):
            raise PathError(f"{what} {normal!r} lies below the reserved path {root!r}")
    return normal


def resource_file_name(name: str) -> str:
    """Return the name of a resource's JSON file.

    Raises:
        PathError: The resource's name could leave its folder.
    """
    if not name.strip() or "/" in name or "\\" in name or ".." in name or "\0" in name:
        raise PathError(f"resource name {name!r} cannot be a file name")
    if not is_unicode(name):
        raise PathError("resource name holds half a character")
    return f"{name}.json"


def check_collisions(paths: Iterable[str]) -> None:
    """Check that no path equals another one or is its parent.

    Raises:
        PathError: Two paths collide.
    """
    ordered = sorted(paths, key=lambda path: PurePosixPath(path).parts)
    for first, second in pairwise(ordered):
        if is_at_or_below(second, first):
            raise PathError(f"duplicate materialized path {second!r} (also {first!r})")


def check_tester_path(path: object, planned: Iterable[str], what: str) -> str:
    """Return the agent path that a tester chose beside the planned ones.

    Args:
        path: ``task_file`` or ``artifact_path``.
        planned: Paths of the agent's plan.
        what: Name in messages.

    Raises:
        PathError: Not permitted, or equal to, above or below a planned path.
    """
    normal = author_path(path, Component.AGENT, what)
    for other in planned:
        if is_at_or_below(normal, other) or is_at_or_below(other, normal):
            raise PathError(f"{what} {normal!r} collides with public materialized path {other!r}")
    return normal


def _target(component: str) -> Component:
    if component in FRAMEWORK_ROOTS:
        return Component(component)
    raise ResourceError(f"component {component!r} is never a target of files")


def _permitted(path: object, what: str) -> str:
    normal = safe_relative_path(path, what)
    for denied in DENIED:
        if is_at_or_below(normal, denied):
            raise PathError(f"{what} {normal!r} is denied: {denied!r} is reserved")
    return normal


def is_unicode(text: str) -> bool:
    """Return whether a text has no half of a character, which no file can hold."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


IMAGE = "image"
IMAGE_PROBLEM = "benchmark environment.image is required: a non-empty string"
_TIMEOUT: Final = Shape(SECONDS)
MATERIALIZE = "materialize_workdir_from_image"
DEFAULT_TARGET = "/workspace"
MOUNT_TARGETS = (DEFAULT_TARGET, "/app", "/securebench-workspace", "/testbed")
"""Where a workspace may be mounted: there or below."""

WITHOUT_EFFECT = ("packages", "env", "setup", "network", "resources")
"""Known names that nothing reads."""

_MEANINGS: Final = {
    IMAGE: described(
        {"description": "the name of an image"},
        "Image of agent and verifier; required, in the manifest or in the row.",
        "python:3.11-slim",
    ),
    "workdir": described(
        {"description": "an absolute path"},
        "terminal_task: where the workspace is, else `/workspace`; at or below `/workspace`,"
        " `/app`, `/securebench-workspace` or `/testbed`. repo_patch: the repository in the image.",
        "/testbed",
    ),
    "timeout_seconds": described(
        {"description": SECONDS["description"]},
        "Time limit of the agent, in seconds; a smaller one of the tester YAML wins. Also of the"
        " check of a code_completion and a terminal_task that has none of its own.",
        600,
    ),
    MATERIALIZE: described(
        {"description": "a boolean"},
        "terminal_task: the content of `workdir` in the image is copied into the workspace first.",
        True,  # noqa: FBT003 - an example
        False,  # noqa: FBT003 - a default
    ),
}
ENVIRONMENT_KEYS = frozenset({*_MEANINGS, *WITHOUT_EFFECT})


MAX_IMAGE_NAME: Final = 255
"""Characters of host and repository together."""

# The grammar of github.com/distribution/reference, which the kubelet's runtimes use.
_HOST = (
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*"
)
_HOST += r"|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_NAME: Final = re.compile(rf"(?:{_HOST}/)?{REPOSITORY_PATTERN}", re.ASCII)
_TAGGED: Final = re.compile(
    r"(?P<name>[^@]+?)(?::(?P<tag>[^:/@]*))?(?:@(?P<digest>.*))?", re.DOTALL
)
_TAG_FORM: Final = re.compile(TAG_PATTERN)
_DIGEST_FORM: Final = re.compile(_DIGEST, re.ASCII)


class EnvironmentProblem(NamedTuple):
    """What is wrong with one key of an environment, without its context."""

    key: str
    reason: str


def environment_schema() -> dict[str, object]:
    """Return which keys an environment may have, as JSON Schema."""
    no_effect = {key: described({}, "Has no effect.", None) for key in WITHOUT_EFFECT}
    properties = {**_MEANINGS, **no_effect}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def unknown_environment_keys(environment: Mapping[str, object]) -> Iterator[EnvironmentProblem]:
    """Yield the keys that nobody knows (contract 21.18)."""
    for key in environment:
        if key not in ENVIRONMENT_KEYS:
            hint = did_you_mean_or_known(key, ENVIRONMENT_KEYS)
            yield EnvironmentProblem(key, f"unknown key {key!r} in environment{hint}")


def environment_problems(task: SecureBenchTask) -> Iterator[EnvironmentProblem]:
    """Yield what is wrong with the values of a task's environment."""
    environment = task.environment
    image = environment.get(IMAGE)
    if not isinstance(image, str) or not is_text(image):
        yield EnvironmentProblem(IMAGE, IMAGE_PROBLEM)
    elif (problem := image_problem(image)) is not None:
        yield EnvironmentProblem(IMAGE, f"environment.{IMAGE} {problem}")
    timeout = environment.get("timeout_seconds")
    problem = None if timeout is None else timeout_problem(timeout)
    if problem is not None:
        yield EnvironmentProblem("timeout_seconds", problem)
    copy = environment.get(MATERIALIZE)
    if copy is not None and not isinstance(copy, bool):
        yield EnvironmentProblem(MATERIALIZE, f"environment.{MATERIALIZE} must be a boolean")
    elif copy and not _has_workspace(task):
        kinds = {name: family.candidate_kind for name, family in FAMILIES.items()}
        names = ", ".join(name for name, kind in kinds.items() if kind == "workspace")
        reason = f"environment.{MATERIALIZE} is for {names} only"
        yield EnvironmentProblem(MATERIALIZE, reason)
    try:
        workspace_target(task)
    except PathError as error:
        yield EnvironmentProblem("workdir", error.reason)


def timeout_problem(timeout: object) -> str | None:
    """Return why a value cannot be a task's time limit, or None."""
    return next(_TIMEOUT.problems("environment.timeout_seconds", timeout), None)


def image_problem(image: str) -> str | None:
    """Return why a text cannot be the name of an image, or None.

    Args:
        image: ``[host/]repository[:tag][@digest]``.
    """
    if any(each.isspace() for each in image):
        return f"{image!r} is no image reference: it holds a blank"
    parts = _TAGGED.fullmatch(image)
    name, tag, digest = parts.group("name", "tag", "digest") if parts else (image, None, None)
    if digest is not None and _DIGEST_FORM.fullmatch(digest) is None:
        return f"{image!r} is no image reference: {digest!r} is no digest (sha256:<64 hex digits>)"
    if tag is not None and _TAG_FORM.fullmatch(tag) is None:
        return f"{image!r} is no image reference: {tag!r} is no tag"
    if _NAME.fullmatch(name) is None:
        is_large = _NAME.fullmatch(name.lower()) is not None
        why = "small letters only" if is_large else f"{name!r} is no name of a repository"
        return f"{image!r} is no image reference: {why}"
    if len(name) > MAX_IMAGE_NAME:
        return f"an image name has more than {MAX_IMAGE_NAME} characters"
    return None


def workspace_target(task: SecureBenchTask) -> str:
    """Return where the workspace is mounted in the task's containers.

    Raises:
        PathError: A terminal_task's ``environment.workdir`` is no permitted target.
    """
    workdir = task.environment.get("workdir")
    if not _has_workspace(task) or workdir is None:
        return DEFAULT_TARGET
    if not isinstance(workdir, str) or "\\" in workdir or "\0" in workdir:
        raise PathError("environment.workdir must be an absolute path")
    path = PurePosixPath(workdir)
    if not path.is_absolute() or ".." in path.parts:
        raise PathError("environment.workdir must be an absolute path without '..'")
    if not any(is_at_or_below(str(path), target) for target in MOUNT_TARGETS):
        raise PathError(
            f"environment.workdir is no workspace mount target; use {', '.join(MOUNT_TARGETS)}"
            " or a folder below"
        )
    return str(path)


def _has_workspace(task: SecureBenchTask) -> bool:
    family = FAMILIES.get(task.task_type)
    return family is not None and family.candidate_kind == "workspace"
