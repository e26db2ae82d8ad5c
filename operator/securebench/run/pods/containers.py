"""The containers from which launch Pods are put together: command lines, specifications, manifests.

Source: docs/reference/protocol.md, "supervise" and "Courier and text verifier".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from securebench.protocol.candidate import KINDS, CandidateBounds
from securebench.protocol.messages import encode_spec
from securebench.protocol.supervise import (
    ARTIFACTS_EXCLUDED,
    SOURCES,
    CourierSpec,
    RunSpec,
    SealSpec,
    StreamsSpec,
)
from securebench.run import layout
from securebench.run.artifacts import Given, Part, Taken, TaskPrograms
from securebench.run.pods import volumes
from securebench.run.pods.frame import (
    TASK_IMAGE_PULL_POLICY,
    Containers,
    Manifest,
    pod,
    trusted,
    untrusted,
)
from securebench.run.pods.volumes import tail_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from _typeshed import DataclassInstance

    from securebench.protocol.supervise import ArtifactSpec, SuperviseSpec
    from securebench.run.plan.environment import Environment, EnvironmentService, ReadyCheck
    from securebench.run.plan.model import ClusterFacts, LaunchKey, PodPolicy, RunPlan, TaskPlan
    from securebench.run.pods.frame import Frame, PodMount

PYTHON = "python3"
POD_SUPERVISE = "/usr/local/bin/supervise"
"""In our Pod image; task images get a copy of it."""

ROOT = 0
ROOT_USERS = frozenset({"", "root", str(ROOT)})
"""Names that this user has in every image, and none: supervise stays who it is then."""

BECOMING = ("SETUID", "SETGID")
"""With which supervise becomes another user, for good, before the first command; no command has
them. Pod Security level *baseline* allows them, *restricted* does not."""

OVERRIDING = ("CHOWN", "DAC_OVERRIDE", "FOWNER")
"""With which supervise as root changes what belongs to other users, before the first command; no
command has them."""

PROBE_TIMEOUT_SECONDS = 20
"""How long supervise waits for the probes to be closed."""


def module_argv(module: str, spec: DataclassInstance) -> list[str]:
    """Return the command line of a module in our Pod image, ``grading.verify_text`` for one."""
    return [PYTHON, "-I", "-m", f"securebench.{module}", "--spec", encode_spec(spec)]


def supervise_argv(program: str, spec: SuperviseSpec) -> list[str]:
    """Return the command line of supervise.

    Args:
        program: Where it lies in the container.
        spec: What to do.
    """
    return [program, spec.verb, "--spec", encode_spec(spec)]


def base_spec(plan: RunPlan, facts: ClusterFacts, head: int) -> RunSpec:
    """Return what the specifications of every ``supervise run`` share.

    Args:
        plan: The run.
        facts: How many processes there may be.
        head: How much of the beginning of a stream is kept.
    """
    return RunSpec(
        streams=StreamsSpec(layout.OUTPUT, head, tail_bytes(plan.limits)),
        temporary=layout.TEMPORARY,
        probes=tuple(plan.pods.probes),
        probe_timeout_seconds=PROBE_TIMEOUT_SECONDS,
        max_processes=facts.max_processes,
    )


def seal_spec(plan: RunPlan, task: TaskPlan, exclude: Sequence[str]) -> CourierSpec:
    """Return the courier's job in a harness Pod.

    An agent's output can be watched, unless it may hold values that a tester exposes: these are
    taken out of whole texts only.

    Args:
        plan: The run.
        task: The task.
        exclude: Paths of the workspace that never belong to a candidate.
    """
    is_live = not plan.harness.env
    bounds = _bounds(plan)
    limit = KINDS[task.extraction.kind].limit(bounds)
    left_out = SOURCES[task.extraction.mode].excluded or tuple(exclude)
    if judged_artifacts(task) is not None:
        left_out = tuple(place.removeprefix("/") for place in ARTIFACTS_EXCLUDED)
    return CourierSpec(bounds, SealSpec(task.extraction, limit, left_out, is_live))


def judged_artifacts(task: TaskPlan) -> tuple[ArtifactSpec, ...] | None:
    """Return what alone of the agent's container is judged; None where more of it is."""
    return None if task.verification is None else task.verification.artifacts


def _bounds(plan: RunPlan) -> CandidateBounds:
    """Return the bounds that the courier keeps: a record's length is none of them."""
    return CandidateBounds(
        **{each.name: getattr(plan.limits, each.name) for each in fields(CandidateBounds)}
    )


TERMINATION = {"terminationMessagePolicy": "File"}
"""Without the fallback to logs: those are untrusted text."""


@dataclass(frozen=True, slots=True)
class CourierJob:
    """What the courier of a launch does.

    Attributes:
        spec: Its specification.
        mounts: What it gives, and the workspace where it needs it.
    """

    spec: CourierSpec
    mounts: Sequence[PodMount]


def courier(policy: PodPolicy, job: CourierJob) -> Manifest:
    """Return the native sidecar that is there first and keeps the results last."""
    mounts = (
        volumes.mount(volumes.OUTPUT, layout.COURIER_OUTPUT, read_only=True),
        *job.mounts,
    )
    resources = volumes.container_resources(volumes.COURIER_REQUESTS, volumes.COURIER_LIMITS)
    container = trusted_container(policy, layout.COURIER, resources, mounts)
    container["restartPolicy"] = "Always"
    given = [each for each in job.mounts if isinstance(each, Given)]
    container["command"] = supervise_argv(POD_SUPERVISE, policy.medium.courier(job.spec, given))
    return container


def verifier_courier(
    plan: RunPlan, launch: LaunchKey, folders: Sequence[str] = (), mounts: Sequence[PodMount] = ()
) -> Manifest:
    """Return the courier of a verifier Pod, which collects what the verifier writes.

    Args:
        plan: The run.
        launch: The verifier's.
        folders: Made at once for containers that wait for them, relative to its root.
        mounts: Where they are.
    """
    verification = volumes.part_mount(plan, launch, Part.VERIFICATION, layout.COURIER_VERIFICATION)
    spec = CourierSpec(_bounds(plan), folders=tuple(folders))
    return courier(plan.pods, CourierJob(spec, [verification, *mounts]))


def trusted_container(
    policy: PodPolicy, name: str, resources: Manifest, mounts: Sequence[PodMount]
) -> Manifest:
    """Return a container of our Pod image, still without a command.

    Args:
        policy: Image and how it is pulled.
        name: Unique in the Pod.
        resources: Requests and limits.
        mounts: All of them; the Pod's /dev/shm is left to containers like this one.
    """
    return {
        "name": name,
        "image": policy.image,
        "imagePullPolicy": policy.image_pull_policy,
        "resources": resources,
        "volumeMounts": list(mounts),
        "securityContext": trusted(),
        **TERMINATION,
    }


@dataclass(frozen=True, slots=True)
class TaskContainer:
    """A container of the task image; supervise is its PID 1.

    Attributes:
        name: ``harness``, ``materialize`` or ``check``.
        environment: Its image, its limits, and whether its root can be written.
        mounts: Besides our programs and /dev/shm; their sizes are part of its limits.
        shared_memory: Whose /dev/shm it gets; empty for its own.
        capabilities: Added for a check, or for supervise itself.
        user: User and group of supervise; None for the image's own. Of an environment with a user
            of its own it is root, which becomes that user.
        ended: Containers that ran to their end before: the disk that they took counts as its own.
    """

    name: str
    environment: Environment
    mounts: Sequence[PodMount]
    shared_memory: str = ""
    capabilities: Sequence[str] = ()
    user: int | None = None
    ended: Sequence[TaskContainer] = ()

    def storage_bytes(self, policy: PodPolicy) -> int:
        """Return what its volumes and roots may hold on the node's disk."""
        everyone = (self, *self.ended)
        own = {
            mount.volume["name"]: mount.size_bytes
            for each in everyone
            for mount in each.mounts
            if isinstance(mount, volumes.OwnVolume)
        }
        roots = sum(volumes.root_bytes(policy, each.environment) for each in everyone)
        return sum(own.values()) + roots + volumes.MARGIN_BYTES


def task_container(policy: PodPolicy, container: TaskContainer, spec: SuperviseSpec) -> Manifest:
    """Return a container of the task image in which supervise does what ``spec`` says.

    It starts in ``/`` where the environment has a working folder: the image's own may be missing,
    supervise enters the right one.
    """
    environment, capabilities, user = container.environment, container.capabilities, container.user
    if isinstance(spec, RunSpec):
        if environment.user:
            user = ROOT
        if environment.user not in ROOT_USERS:
            spec = replace(spec, user=environment.user)
        changer = "" if spec.changes is None else spec.changes.user
        if environment.user and spec.changes is not None and not changer:
            capabilities = (*capabilities, *OVERRIDING)
        if not {environment.user, changer} <= ROOT_USERS:
            capabilities = (*capabilities, *BECOMING)
    return {
        "name": container.name,
        "image": environment.image,
        "imagePullPolicy": TASK_IMAGE_PULL_POLICY,
        "command": supervise_argv(layout.SUPERVISE, spec),
        **({"workingDir": "/"} if environment.workdir else {}),
        "resources": volumes.task_resources(
            policy, environment.limits, container.storage_bytes(policy)
        ),
        "volumeMounts": [
            *container.mounts,
            Taken(TaskPrograms(policy.tools), layout.TOOLS),
            volumes.shared_memory(container.shared_memory or container.name),
        ],
        "securityContext": untrusted(
            read_only_root=not environment.writable_root,
            capabilities=capabilities,
            user=user,
        ),
        **TERMINATION,
    }


READY_PERIOD_SECONDS = 2
"""Between two tries of a service's check."""

SERVICE_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
"""With which the start scripts of usual images prepare their data and become another user. Pod
Security level *baseline* allows them, *restricted* does not."""


def side_pod(
    plan: RunPlan, environment: Environment, frame: Frame, containers: Containers
) -> Manifest:
    """Return the Pod of one side: its services start before everything else, one after the other.

    They stand before the courier: the kubelet ends sidecars in reverse, so that one which ignores
    its signal does not delay the sealing.

    Args:
        plan: The run.
        environment: Of the side.
        frame: The Pod without what services need.
        containers: All others.
    """
    services = environment.services
    if not services:
        return pod(plan, frame, containers)
    known = [name for alias in frame.host_aliases for name in _names(alias)]
    names = [*known, *(service.name for service in services)]
    seconds = sum(service.ready.patience_seconds for service in services if service.ready)
    frame = replace(
        frame,
        deadline_seconds=frame.deadline_seconds + math.ceil(seconds),
        host_aliases=[{"ip": layout.LOOPBACK, "hostnames": names}],
    )
    init = [*(_service(plan.pods, service) for service in services), *containers.init]
    return pod(plan, frame, Containers(containers.main, init))


def _names(alias: Manifest) -> list[str]:
    names = alias["hostnames"]
    return list(map(str, names)) if isinstance(names, list) else []


def _service(policy: PodPolicy, service: EnvironmentService) -> Manifest:
    name = f"{layout.SERVICE_PREFIX}{service.name}"
    storage = service.limits.storage_bytes or volumes.ROOT_BYTES
    security = untrusted(read_only_root=False, capabilities=SERVICE_CAPABILITIES)
    optional: Manifest = {
        "command": _literal(service.entrypoint or ()),
        "args": _literal(service.command or ()),
        "workingDir": service.workdir,
        "env": [
            {"name": each, "value": text}
            for each, text in zip(service.env, _literal(service.env.values()), strict=True)
        ],
        "startupProbe": None if service.ready is None else _startup(service.ready),
    }
    return {
        "name": name,
        "image": service.image,
        "imagePullPolicy": TASK_IMAGE_PULL_POLICY,
        "restartPolicy": "Always",
        **{key: value for key, value in optional.items() if value},
        "resources": volumes.task_resources(policy, service.limits, storage + volumes.MARGIN_BYTES),
        "volumeMounts": [volumes.shared_memory(name)],
        "securityContext": security
        if service.user is None
        else {**security, "runAsUser": service.user},
        **TERMINATION,
    }


def _literal(texts: Iterable[str]) -> list[str]:
    """Return texts of which the kubelet replaces nothing: it makes one ``$`` of two."""
    return [text.replace("$", "$$") for text in texts]


def _startup(check: ReadyCheck) -> Manifest:
    return {
        "exec": {"command": list(check.command)},
        "periodSeconds": READY_PERIOD_SECONDS,
        "timeoutSeconds": max(1, math.ceil(check.timeout_seconds)),
        "failureThreshold": max(1, math.ceil(check.patience_seconds / READY_PERIOD_SECONDS)),
    }
