"""Environment keys that have a meaning, and names of images (contract 5.1, 10, 12.1)."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.pack.paths import PathError, is_at_or_below
from securebench.json_values import described, is_positive, is_text
from securebench.names import REPOSITORY_PATTERN, TAG_PATTERN
from securebench.text import did_you_mean_or_known

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.benchmark.pack.task import SecureBenchTask

IMAGE = "image"
IMAGE_PROBLEM = "benchmark environment.image is required: a non-empty string"
TIMEOUT_PROBLEM = "environment.timeout_seconds must be a positive number"
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
        {"description": "a positive number"},
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
    if timeout is not None and not is_positive(timeout):
        yield EnvironmentProblem("timeout_seconds", TIMEOUT_PROBLEM)
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
