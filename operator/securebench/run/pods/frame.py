"""Metadata and Pod-level fields that all Pods of a run share, and what their containers may do.

Source: design 5, contract 10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from securebench.names import (
    APP_NAME,
    ATTEMPT_ANNOTATION,
    COMPONENT_LABEL,
    LAUNCH_ANNOTATION,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    NAME_LABEL,
    QUEUE_LABEL,
    ROLE_LABEL,
    RUN_LABEL,
    RUN_UID_LABEL,
    TASK_INDEX_ANNOTATION,
    label_value,
)
from securebench.run.api.field_types import API_VERSION, KIND
from securebench.run.artifacts import Given, Mount, Taken
from securebench.run.layout import USER_ID
from securebench.run.plan.model import (
    LaunchKey,
    PodPolicy,
    PodUserNamespaces,
    Role,
    RunIdentity,
    RunPlan,
    pod_name,
)
from securebench.run.pods.volumes import OwnVolume

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from securebench.run.artifacts import PodMedium
    from securebench.run.plan.model import ClusterFacts


Manifest = dict[str, object]

PodMount = Mount | OwnVolume
"""A mount of a container: an artifact, a volume of the Pod, or a volume that another has."""


RUNTIME_DEFAULT = {"type": "RuntimeDefault"}


LAUNCH_ROLES = frozenset({Role.HARNESS, Role.VERIFIER})


NO_LIMIT_SECONDS = 24 * 3600
"""Time of a command that has no limit of its own; a Pod always has a deadline."""


NO_RESOLVER = "127.0.0.1"
"""Nothing listens there, so every lookup fails at once."""


TASK_IMAGE_PULL_POLICY = "IfNotPresent"
"""As ``docker run``; the record keeps the image id and a changed one is noticed."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One Pod without its containers.

    Attributes:
        name: Also its host name.
        role: What it is for.
        deadline_seconds: After which the kubelet ends it.
        annotations: Which launch it is; empty for probes.
        user_namespaces: Whether it gets a user namespace of its own.
        dns: How it resolves names; by default not at all.
        host_aliases: Further lines of its hosts file.
    """

    name: str
    role: Role
    deadline_seconds: int
    user_namespaces: PodUserNamespaces
    annotations: Mapping[str, str] = field(default_factory=dict)
    dns: Manifest = field(default_factory=lambda: resolvers([NO_RESOLVER]))
    host_aliases: Sequence[Manifest] = ()


@dataclass(frozen=True, slots=True)
class Containers:
    """The containers of a Pod; its volumes are those that they mount.

    Attributes:
        main: Runs once.
        init: Sidecars and init containers, in their order.
    """

    main: Manifest
    init: Sequence[Manifest] = ()


def launch_frame(
    plan: RunPlan, launch: LaunchKey, command_seconds: float | None, facts: ClusterFacts
) -> Frame:
    """Return the frame of a launch Pod.

    Args:
        plan: The run.
        launch: Which launch.
        command_seconds: Time limit of its command, or None.
        facts: Whether it gets a user namespace.
    """
    return Frame(
        name=pod_name(plan.identity.uid, launch),
        role=launch.role,
        deadline_seconds=deadline_seconds(plan.pods, command_seconds),
        user_namespaces=facts.user_namespaces,
        annotations={
            TASK_INDEX_ANNOTATION: str(launch.task),
            ATTEMPT_ANNOTATION: str(launch.attempt),
            LAUNCH_ANNOTATION: str(launch.launch),
        },
    )


def deadline_seconds(policy: PodPolicy, command_seconds: float | None) -> int:
    """Return the Pod's deadline: start-up allowance, time limit and grace (design 12.4)."""
    command = NO_LIMIT_SECONDS if command_seconds is None else math.ceil(command_seconds)
    return policy.startup_allowance_seconds + command + policy.grace_seconds


def pod(plan: RunPlan, frame: Frame, containers: Containers) -> Manifest:
    """Return a whole Pod, with what the run's medium does for the artifacts of its containers.

    Args:
        plan: The run.
        frame: Its name, role and deadline.
        containers: What runs in it.
    """
    containers, volumes = _attached(plan.pods.medium, containers)
    metadata: Manifest = {
        "name": frame.name,
        "namespace": plan.identity.namespace,
        "labels": {**labels(plan.identity, frame.role), **_queue(plan.pods, frame.role)},
        "ownerReferences": [owner(plan.identity)],
    }
    if frame.annotations:
        metadata["annotations"] = dict(frame.annotations)
    spec: Manifest = {
        "hostname": frame.name,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": frame.deadline_seconds,
        "terminationGracePeriodSeconds": plan.pods.grace_seconds,
        "serviceAccountName": plan.pods.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **frame.dns,
        "securityContext": pod_security(),
        **_placement(plan.pods),
        **({"initContainers": list(containers.init)} if containers.init else {}),
        "containers": [containers.main],
        "volumes": volumes,
    }
    if frame.host_aliases:
        spec["hostAliases"] = list(frame.host_aliases)
    if frame.user_namespaces is PodUserNamespaces.ON:
        spec["hostUsers"] = False
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _attached(medium: PodMedium, containers: Containers) -> tuple[Containers, list[Manifest]]:
    """Return the containers with mounts as Kubernetes has them, and the Pod's volumes."""
    everyone = [containers.main, *containers.init]
    mounts = [cast("Sequence[PodMount]", each["volumeMounts"]) for each in everyone]
    flat = [each for own in mounts for each in own]
    attached = medium.attach([each for each in flat if isinstance(each, Taken | Given)])
    found = iter(attached.mounts)
    main, *init = (
        {**each, "volumeMounts": [_mounted(it, found) for it in own]}
        for each, own in zip(everyone, mounts, strict=True)
    )
    own = {each.volume["name"]: each.volume for each in flat if isinstance(each, OwnVolume)}
    return Containers(main, [*attached.init, *init]), [*attached.volumes, *own.values()]


def _mounted(wanted: PodMount, artifacts: Iterator[Manifest]) -> Manifest:
    match wanted:
        case OwnVolume():
            return wanted.mount
        case dict():
            return wanted
        case _:
            return next(artifacts)


def resolvers(addresses: Sequence[str]) -> Manifest:
    """Return the part of a Pod by which it asks only these name servers."""
    return {"dnsPolicy": "None", "dnsConfig": {"nameservers": list(addresses)}}


def labels(identity: RunIdentity, role: Role) -> dict[str, str]:
    """Return the labels of a run's Pod; every new set of them is a new identity for the network."""
    return {
        **run_labels(identity),
        ROLE_LABEL: role.value,
        COMPONENT_LABEL: role.value,
    }


def _queue(policy: PodPolicy, role: Role) -> dict[str, str]:
    """Return the label by which a queue admits a launch's Pod.

    Canary, control and gateway go past the queue: launches that it has admitted hold its quota and
    could wait for them without end.
    """
    return {QUEUE_LABEL: policy.queue} if policy.queue and role in LAUNCH_ROLES else {}


def run_labels(identity: RunIdentity) -> dict[str, str]:
    """Return the labels of everything that belongs to a run."""
    return {
        NAME_LABEL: APP_NAME,
        MANAGED_BY_LABEL: MANAGED_BY,
        RUN_UID_LABEL: identity.uid,
        RUN_LABEL: label_value(identity.name),
    }


def owner(identity: RunIdentity) -> Manifest:
    """Return the reference by which the cluster deletes a run's objects; it blocks no deletion."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": identity.name,
        "uid": identity.uid,
        "controller": True,
    }


def _placement(policy: PodPolicy) -> Manifest:
    optional: Manifest = {
        "runtimeClassName": policy.runtime_class,
        "priorityClassName": policy.priority_class,
        "nodeSelector": dict(policy.node_selector),
        "tolerations": [dict(toleration) for toleration in policy.tolerations],
        "imagePullSecrets": [{"name": name} for name in policy.image_pull_secrets],
        "affinity": _affinity(policy.node_name),
    }
    return {name: value for name, value in optional.items() if value}


def _affinity(node_name: str) -> Manifest:
    if not node_name:
        return {}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"nodeAffinity": required}


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
