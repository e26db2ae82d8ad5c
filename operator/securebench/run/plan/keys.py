"""Identity of attempts and launches, and the names of their Pods."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

_HARNESS_POD = re.compile(r"sb-([0-9a-f]+)-([0-9]{1,9})-([0-9]{1,9})h([0-9]{1,9})")


class Role(StrEnum):
    """What a Pod of a run is for."""

    HARNESS = "harness"
    VERIFIER = "verifier"
    CANARY = "canary"
    CONTROL = "control"
    GATEWAY = "gateway"


class AttemptKey(NamedTuple):
    """One logical attempt of one task: task index from 0 in pack order, attempt from 1."""

    task: int
    attempt: int


class LaunchKey(NamedTuple):
    """One Pod of one launch; launches count from 1 per attempt and role."""

    task: int
    attempt: int
    role: Role
    launch: int

    @property
    def attempt_key(self) -> AttemptKey:
        """The attempt that this launch belongs to."""
        return AttemptKey(self.task, self.attempt)


def pod_name(run_uid: str, launch: LaunchKey) -> str:
    """Return the deterministic name of a launch Pod."""
    role = launch.role.value[0]
    return f"sb-{short_uid(run_uid)}-{launch.task}-{launch.attempt}{role}{launch.launch}"


def harness_launch(run_uid: str, name: str) -> LaunchKey | None:
    """Return the harness launch whose Pod has this name, or None for another name."""
    found = _HARNESS_POD.fullmatch(name)
    if found is None or found[1] != short_uid(run_uid):
        return None
    return LaunchKey(int(found[2]), int(found[3]), Role.HARNESS, int(found[4]))


def member_name(launch: LaunchKey) -> str:
    """Return the name of a launch among those that share its Pod."""
    return f"{launch.task}-{launch.attempt}-{launch.launch}"


def short_uid(run_uid: str) -> str:
    """Return the part of a run's uid that object names contain: its first twelve hex digits."""
    return run_uid.replace("-", "")[:12]
