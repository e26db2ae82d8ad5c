"""Where the workspace is mounted and how long the agent may work (contract 10, 12.1, 15.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.errors import ConfigError
from securebench.families.fields import is_positive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.harnesses.config import Harness

DEFAULT_TARGET = "/workspace"
ALLOWED_TARGETS = ("/workspace", "/app", "/securebench-workspace", "/testbed")


class WorkspaceTargetError(ConfigError, ValueError):
    """The workspace cannot be mounted there."""


def workspace_target(task_type: str, environment: Mapping[str, object]) -> str:
    """Return the absolute folder at which the workspace is mounted.

    Args:
        task_type: Family; only terminal_task has its workspace at the workdir.
        environment: Merged environment of the task.

    Raises:
        WorkspaceTargetError: ``environment.workdir`` is no allowed mount target.
    """
    workdir = environment.get("workdir")
    if task_type != "terminal_task" or workdir is None:
        return DEFAULT_TARGET
    if not isinstance(workdir, str) or not workdir.startswith("/"):
        raise WorkspaceTargetError("environment.workdir must be an absolute path")
    parts = [part for part in workdir.split("/") if part not in {"", "."}]
    if ".." in parts or "\\" in workdir or "\0" in workdir:
        raise WorkspaceTargetError("environment.workdir must not contain '..' or a backslash")
    target = f"/{'/'.join(parts)}"
    if not any(target == root or target.startswith(f"{root}/") for root in ALLOWED_TARGETS):
        raise WorkspaceTargetError(
            f"environment.workdir {target!r} is no allowed workspace mount target: use "
            f"{', '.join(ALLOWED_TARGETS)} or a folder below one of them"
        )
    return target


def agent_time_limit(environment: Mapping[str, object], harness: Harness) -> float | None:
    """Return the seconds that the agent's command may take, or None for no limit.

    The smaller of the task's and the tester's limit, of those given; the harness default
    only where neither is given.

    Raises:
        ConfigError: ``environment.timeout_seconds`` is no positive number.
    """
    task_limit = environment.get("timeout_seconds")
    tester_limit = None if harness.is_default_timeout else harness.timeout_seconds
    if task_limit is None:
        return harness.timeout_seconds
    if not isinstance(task_limit, int | float) or not is_positive(task_limit):
        raise ConfigError("environment.timeout_seconds must be a positive number")
    return float(task_limit) if tester_limit is None else min(float(task_limit), tester_limit)
