"""What our containers and Pods may do.

Source: design 5, contract 10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.run.layout import USER_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

RUNTIME_DEFAULT = {"type": "RuntimeDefault"}


def trusted() -> dict[str, object]:
    """Return the security context of a container that runs our own image: *restricted*."""
    return {
        **_confined(read_only_root=True, capabilities=()),
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
    }


def untrusted(
    *, read_only_root: bool, capabilities: Sequence[str] = (), user: int | None = None
) -> dict[str, object]:
    """Return the security context of a container of a task image.

    Args:
        read_only_root: Whether only mounts can be written.
        capabilities: Added after all were dropped; for checks that the tester allowed, and for
            supervise where it has to become another user.
        user: User and group; None for the image's own user.
    """
    confined = _confined(read_only_root=read_only_root, capabilities=capabilities)
    if user is None:
        return confined
    return {**confined, "runAsNonRoot": user != 0, "runAsUser": user, "runAsGroup": user}


def pod_security() -> dict[str, object]:
    """Return the security context of every Pod; never with fsGroup."""
    return {"seccompProfile": dict(RUNTIME_DEFAULT)}


def _confined(*, read_only_root: bool, capabilities: Sequence[str]) -> dict[str, object]:
    granted: dict[str, object] = {"drop": ["ALL"]}
    if capabilities:
        granted["add"] = sorted(capabilities)
    return {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": read_only_root,
        "capabilities": granted,
        "seccompProfile": dict(RUNTIME_DEFAULT),
    }
