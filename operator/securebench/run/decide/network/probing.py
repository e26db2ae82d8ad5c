"""Probing Pods: what to prove, what they are to do and found, how long to listen. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from securebench.protocol.probe import QUIET_SECONDS, ProbeTarget
from securebench.run.layout import PROBE
from securebench.run.observe.pods import PodView
from securebench.run.observe.stage import CONTAINER_WAITS
from securebench.run.observe.termination import BadMessageError, decode, kernel_release
from securebench.run.plan.cluster_facts import PodUserNamespaces
from securebench.run.plan.keys import Role

MARGIN = 2.0
"""A canary listens so many times as long as the control needed for its answers: what came up late
for the one may come up late for the other, and would look closed before."""


@dataclass(frozen=True, slots=True)
class CanaryCheck:
    """What to prove and how long it may take.

    Attributes:
        targets: What no Pod of a run may reach.
        timeout_seconds: For the whole check, from the first Pod that may be made.
        may_have_user_namespaces: Whether a canary with a user namespace is tried first.
        must_have_user_namespaces: Whether there is no proof without one.
        runtime_class: Runtime class of the run's Pods, or empty.
        must_be_sandboxed: Whether the administrator requires a sandbox of that class.
        is_node_allowed: Whether targets of the node may be reached all the same.
        has_gateway: Whether the run has a gateway, which the canary must reach.
    """

    targets: Sequence[ProbeTarget]
    timeout_seconds: float
    may_have_user_namespaces: bool = True
    must_have_user_namespaces: bool = False
    runtime_class: str = ""
    must_be_sandboxed: bool = False
    is_node_allowed: bool = False
    has_gateway: bool = False


class Probe(NamedTuple):
    """A probing Pod to make.

    Attributes:
        role: Canary or control.
        number: Counts from 1.
        user_namespaces: ON only for a canary.
        quiet_seconds: How long a canary listens.
    """

    role: Role
    number: int
    user_namespaces: PodUserNamespaces = PodUserNamespaces.OFF
    quiet_seconds: float = QUIET_SECONDS


class CanaryAnswer(NamedTuple):
    """What a probing Pod found.

    Attributes:
        states: State by target.
        kernel: Release of the kernel below it, or empty.
        user_namespace: Whether it had one of its own.
        seconds: Of a canary, how long what it found closed had been silent; of a control, after how
            long the last of what it found open answered. None where it does not say.
    """

    states: Mapping[str, str]
    kernel: str
    user_namespace: bool = False
    seconds: float | None = None


def cannot_start(view: PodView) -> bool:
    """Return whether a probing Pod has a node that has no sandbox for it or refuses its container.

    A Pod that waits for a node or an image says nothing of what the node can do.
    """
    container = view.containers.get(PROBE)
    is_refused = container is not None and container.waiting_reason in CONTAINER_WAITS
    return view.without_sandbox_since is not None or is_refused


def probe_answer(view: PodView) -> CanaryAnswer | None:
    """Return what a probing Pod found, or None when it has not, or broke."""
    container = view.containers.get(PROBE)
    if container is None or container.terminated is None or container.terminated.exit_code != 0:
        return None
    message = container.terminated.message
    try:
        fields = decode(message)
    except BadMessageError:
        return None
    targets, seconds = fields.get("targets"), fields.get("seconds")
    if not isinstance(targets, Mapping):
        return None
    states = {str(name): str(state) for name, state in targets.items()}
    told = float(seconds) if isinstance(seconds, int | float) else None
    return CanaryAnswer(states, kernel_release(message), view.facts.user_namespace, told)


def quiet_seconds(answers: Mapping[Role, CanaryAnswer]) -> float:
    """Return how long a canary has to listen, as far as the control says."""
    control = answers.get(Role.CONTROL)
    return MARGIN * control.seconds if control is not None and control.seconds is not None else 0.0
