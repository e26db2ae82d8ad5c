"""Workspace paths: what may be written for whom, and where (contract 9.4, 9.5)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from securebench.benchmark.resources import Component, ResourceError
from securebench.errors import PackError
from securebench.protocol.messages import FRAMEWORK_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable

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
