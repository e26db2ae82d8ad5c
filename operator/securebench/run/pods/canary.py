"""The Pods that show that a run's Pods reach nothing.

The same targets are tried from a canary, which the policy selects, and from a control, which it
does not select. A target counts as proven when the control reaches it and the canary does not; one
that the control does not reach proves nothing. The run's gateway, where it has one, is the only
address that the canary must reach; no control tries it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from securebench.protocol.gateway import GATEWAY_PORT
from securebench.protocol.messages import CLOSED, OPEN
from securebench.protocol.probe import (
    GATEWAY_SECONDS,
    GATEWAY_TARGET,
    QUIET_SECONDS,
    SETTLE_SECONDS,
    TIMEOUT_SECONDS,
    ProbeTarget,
)
from securebench.protocol.supervise import ProbeSpec, TargetSpec
from securebench.run import layout
from securebench.run.plan.model import PodUserNamespaces, Role, RunPlan
from securebench.run.pods.parts import sizes, volumes
from securebench.run.pods.parts.commands import POD_SUPERVISE, supervise_argv
from securebench.run.pods.parts.containers import trusted_container
from securebench.run.pods.parts.frame import Containers, Frame, Manifest, pod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.run.plan.model import ClusterFacts

PROBE_SECONDS = 60
"""Longer than a probing Pod takes, whatever the number of targets: they are tried side by side."""


def canary_pod(
    plan: RunPlan,
    number: int,
    targets: Sequence[ProbeTarget],
    facts: ClusterFacts,
    quiet_seconds: float = QUIET_SECONDS,
) -> Manifest:
    """Return the Pod that is as closed in as a harness Pod.

    Args:
        plan: The run.
        number: Counts from 1.
        targets: What it tries to reach.
        facts: The gateway's address, where it is known, is a target besides the others. With user
            namespaces ON the canary also shows that a Pod with a sub-path of the volume, this
            runtime class and a user namespace starts.
        quiet_seconds: How long nothing may answer it.
    """
    gateway = facts.gateway
    settle_seconds = GATEWAY_SECONDS if gateway and number == 1 else SETTLE_SECONDS
    spec = _spec(CLOSED, targets, quiet_seconds, settle_seconds)
    if gateway:
        spec = replace(spec, must_open=(_gateway_target(gateway),))
    return _probe_pod(plan, Role.CANARY, number, spec, facts.user_namespaces)


def control_pod(plan: RunPlan, number: int, targets: Sequence[ProbeTarget]) -> Manifest:
    """Return the same Pod without the policy: the proof that a closed target would answer.

    Args:
        plan: The run.
        number: Counts from 1.
        targets: What it tries to reach.
    """
    spec = _spec(OPEN, targets, QUIET_SECONDS, SETTLE_SECONDS)
    return _probe_pod(plan, Role.CONTROL, number, spec, PodUserNamespaces.OFF)


def _spec(
    want: str, targets: Sequence[ProbeTarget], quiet_seconds: float, settle_seconds: int
) -> ProbeSpec:
    return ProbeSpec(
        want=want,
        timeout_seconds=TIMEOUT_SECONDS,
        quiet_seconds=quiet_seconds,
        limit_seconds=quiet_seconds + settle_seconds,
        targets=tuple(
            TargetSpec(target.name, target.host, target.port, target.protocol) for target in targets
        ),
    )


def _probe_pod(
    plan: RunPlan,
    role: Role,
    number: int,
    spec: ProbeSpec,
    user_namespaces: PodUserNamespaces,
) -> Manifest:
    frame = Frame(
        name=layout.probe_name(plan.identity.uid, role, number),
        role=role,
        deadline_seconds=plan.pods.startup_allowance_seconds + PROBE_SECONDS,
        user_namespaces=user_namespaces,
    )
    main = trusted_container(
        plan.pods,
        layout.PROBE,
        sizes.container_resources(sizes.PROBE_REQUESTS, sizes.PROBE_LIMITS),
        (
            volumes.mount(
                volumes.RESULTS,
                layout.PROBE_VOLUME,
                sub_path=layout.probe_folder(plan.identity.uid),
                read_only=True,
            ),
        ),
    )
    main["command"] = supervise_argv(POD_SUPERVISE, spec)
    return pod(plan, frame, Containers(main, (volumes.claim(plan.pods.claim),)))


def _gateway_target(address: str) -> TargetSpec:
    return TargetSpec(GATEWAY_TARGET, address, GATEWAY_PORT, "tcp")
